"""What a query depends on, and which changes can touch its result.

The way of a query: `parse` its text, or `to_sql` its tree first; `analyse` it against the source's catalog; `bind` its
arguments; a `Judge` then tells which changes matter.
"""

from tailrace.sql.sqlite.query.argument import Stored, bind
from tailrace.sql.sqlite.query.dependency import Dependencies, Dependency, analyse
from tailrace.sql.sqlite.query.relevance import Judge
from tailrace.sql.sqlite.query.statement import Statement, parse

__all__ = ["Dependencies", "Dependency", "Judge", "Statement", "Stored", "analyse", "bind", "parse"]
