"""The bulk interface: the log and tables in intervals, as Arrow over HTTP."""
