"""What the pages beside the laboratory play, as plain numbers and as HTML files."""
