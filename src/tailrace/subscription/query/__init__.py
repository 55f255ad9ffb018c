"""Query changefeeds: what a prepared query depends on, which changes can touch its result, and the result's ETag.

The way of a query: `parse` its text, or `to_sql` its tree first; `analyse` it against the source's catalog; `bind` its
arguments; a `Judge` then tells which changes matter, `scan` runs it over the log, and `etag` names the result.
"""

from tailrace.subscription.query.argument import Stored, bind
from tailrace.subscription.query.delta import Delta, difference
from tailrace.subscription.query.dependency import Dependencies, Dependency, analyse
from tailrace.subscription.query.etag import QueryState, advance, begin, etag, not_modified
from tailrace.subscription.query.invalidation import Scan, scan
from tailrace.subscription.query.relevance import Judge
from tailrace.subscription.query.statement import Statement, parse

__all__ = [
    "Delta",
    "Dependencies",
    "Dependency",
    "Judge",
    "QueryState",
    "Scan",
    "Statement",
    "Stored",
    "advance",
    "analyse",
    "begin",
    "bind",
    "difference",
    "etag",
    "not_modified",
    "parse",
    "scan",
]
