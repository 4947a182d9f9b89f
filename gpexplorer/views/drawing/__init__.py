"""What the pictures share: the live update path, colours, rows in file units, brushing and saving."""
