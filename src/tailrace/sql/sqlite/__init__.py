"""SQLite's dialect: its typing, its predicates and what its queries depend on."""
