"""Ranges of tables, for pullers: what there is, who reads it, and the rows and changes of each."""
