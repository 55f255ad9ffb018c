"""The bulk interface, put together: its routes."""

from collections.abc import Sequence

from starlette.routing import Route

from tailrace.clock import Clock
from tailrace.delivery.http.hand_over import HandOver
from tailrace.delivery.http.options import HttpOptions
from tailrace.interface.bulk.log import log_routes
from tailrace.interface.bulk.rows import bulk_rows_routes
from tailrace.metrics import Metrics
from tailrace.subscription.access import Scopes

__all__ = ["bulk_routes"]


def bulk_routes(
    scopes: Scopes, metrics: Metrics, options: HttpOptions, clock: Clock, hand_over: HandOver | None = None
) -> Sequence[Route]:
    """Return the routes: the log in intervals, and the rows of tables."""
    return [*log_routes(scopes, metrics, options, hand_over), *bulk_rows_routes(scopes, metrics, clock)]
