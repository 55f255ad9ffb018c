"""Conditions on the rows of changes, in SQLite's SQL. See docs/reference/predicates.md."""

from tailrace.sql.sqlite.predicate.compile import SqlPredicate, compile_where

__all__ = ["SqlPredicate", "compile_where"]
