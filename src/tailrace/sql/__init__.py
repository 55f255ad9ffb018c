"""SQL as the databases mean it: predicates on rows and the analysis of queries, one package for each dialect."""
