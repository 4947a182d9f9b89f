"""Questions about the rows that are asked before an answer is given: their order, their groups, and odd ones."""
