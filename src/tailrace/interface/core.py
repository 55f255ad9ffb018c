"""What every interface is assembled from."""

from collections.abc import Callable, Coroutine
from typing import Any

from msgspec import Struct

from tailrace.clock import Clock
from tailrace.meta.store import MetaStore
from tailrace.metrics import Metrics
from tailrace.subscription.access import Scopes

__all__ = ["Core"]


class Core(Struct, frozen=True):
    """The parts of a server that its interfaces share."""

    scopes: Scopes
    store: MetaStore
    metrics: Metrics
    clock: Clock
    capture_enabled: bool
    keep_running: Callable[[Coroutine[Any, Any, None]], None]
    """Runs something in a task until the server ends."""
