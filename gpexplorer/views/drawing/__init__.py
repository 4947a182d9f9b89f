"""What pictures share: figures that update in place, colours, rows in the units of the file, linked rows."""
