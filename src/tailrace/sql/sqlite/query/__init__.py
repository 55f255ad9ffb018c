"""What a query depends on, and which changes can touch its result.

The way of a query: `parse` its text, or `to_sql` its tree first; `analyse` it against the source's catalog; `bind` its
arguments; a `Judge` then tells which changes matter.
"""

from tailrace.sql.sqlite.query.argument import bind
from tailrace.sql.sqlite.query.dependency import Dependency, QueryDependencies, analyse
from tailrace.sql.sqlite.query.relevance import QueryJudge
from tailrace.sql.sqlite.query.statement import Query, parse

__all__ = ["Dependency", "Query", "QueryDependencies", "QueryJudge", "analyse", "bind", "parse"]
