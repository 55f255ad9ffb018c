"""Query changefeeds: what a prepared query depends on, which changes can touch its result, and the result's ETag.

The way of a query: `parse` its text, or `to_sql` its tree first; `analyse` it against the source's catalog; `bind` its
arguments; a `Judge` then tells which changes matter, `scan` runs it over the log, `state_tag` names where the query
stands then, and `result_etag` its result.
"""

from tailrace.subscription.query.argument import Stored, bind
from tailrace.subscription.query.delta import Delta, difference
from tailrace.subscription.query.dependency import Dependencies, Dependency, analyse
from tailrace.subscription.query.etag import QueryState, advance, begin, not_modified, result_etag, state_tag
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
    "not_modified",
    "parse",
    "result_etag",
    "scan",
    "state_tag",
]
