"""The hyperparameters on the page and in a cell: a slider in the units of the file and a lock for each."""
