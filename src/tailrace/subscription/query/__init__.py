"""Query changefeeds: prepared queries, where each stands in the log, and the ETags of their results.

A dialect tells what a query depends on (`tailrace.sql`); `scan` runs its judge over the log, `state_tag` names where
the query stands then, and `result_etag` its result.
"""

from tailrace.subscription.query.delta import Delta, difference
from tailrace.subscription.query.etag import QueryState, advance, begin, not_modified, result_etag, state_tag
from tailrace.subscription.query.invalidation import Scan, scan

__all__ = [
    "Delta",
    "QueryState",
    "Scan",
    "advance",
    "begin",
    "difference",
    "not_modified",
    "result_etag",
    "scan",
    "state_tag",
]
