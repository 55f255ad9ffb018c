"""Subscriptions and queries of a server, put together: one service over all logs, guarded for each principal."""

from collections.abc import Mapping

from msgspec import Struct

from tailrace.access.access import AccessControl
from tailrace.access.options import AuthConfig
from tailrace.clock import Clock
from tailrace.meta.store import MetaStore
from tailrace.metrics import Metrics
from tailrace.model.errors import ConfigError, InvalidPredicateError
from tailrace.source.base import QuerySource
from tailrace.sql.dialect import Dialects, dialect_of
from tailrace.subscription.access import Scopes
from tailrace.subscription.query.options import QueryOptions
from tailrace.subscription.query.service import QueryService, QueryShard
from tailrace.subscription.query.tracker import QueryLog
from tailrace.subscription.restrict import check_rows
from tailrace.subscription.service import ServiceOptions, SubscriptionService

__all__ = ["ServedSource", "open_scopes"]


class ServedSource(Struct, frozen=True):
    """One source as subscriptions and queries use it; `reads` is None where it can only be captured."""

    shard: int
    log: QueryLog
    reads: QuerySource | None
    dialect: str


async def open_scopes(
    sources: Mapping[str, ServedSource],
    store: MetaStore,
    access: AccessControl,
    auth: AuthConfig,
    query: QueryOptions,
    retention_changes: int | None,
    clock: Clock,
    metrics: Metrics,
) -> Scopes:
    """Return the service of some sources as principals may use it. Its `service.run` belongs in a task.

    Raises:
        ConfigError: A row predicate of the configuration cannot be read.
    """
    dialects = {name: dialect_of(source.dialect) for name, source in sources.items()}
    _check_principals(auth, dialects)
    shards = {
        name: None if source.reads is None else QueryShard(source.reads, source.log) for name, source in sources.items()
    }
    options = ServiceOptions(
        retention_changes,
        shards={name: source.shard for name, source in sources.items()},
        dialects=dialects,
        capture_enabled=query.capture_enabled,
    )
    queries = await QueryService.open(shards, store, clock, query, metrics)
    logs = {name: source.log for name, source in sources.items()}
    service = await SubscriptionService.open(logs, store, options, queries)
    return Scopes(service, access.keeper, access.limits, subscriptions_max=auth.subscriptions_max)


def _check_principals(auth: AuthConfig, dialects: Dialects) -> None:
    for name, principal in auth.principals.items():
        try:
            check_rows(principal.rows, dialects)
        except InvalidPredicateError as error:
            raise ConfigError(f"auth.principals.{name}: {error}") from error
