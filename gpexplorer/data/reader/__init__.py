"""The reader of a table: how each column was read in training, kept with the model so that new rows are read alike.

`table_reader` decides about every column from all rows; `number_format`, `date_format`
with `date_texts`, and `words` read the cells.
Only NumPy and pyarrow are imported here, because the child process that parses uploads starts with nothing else.
"""
