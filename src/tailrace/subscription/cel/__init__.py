"""Predicates and values in CEL, which is the same for every database. See docs/reference/predicates.md."""
