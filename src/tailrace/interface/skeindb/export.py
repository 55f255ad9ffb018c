"""Subscriptions as SkeinDB keeps them in `cdc_subscriptions.json`. Pure.

A query goes along with the subscriptions that are for it, so that another server can prepare it. Members that are ours
(`where`, `cel`, `auto_ack`, `snapshot`) are left out where they say nothing.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from tailrace.model.op import ROW_OPS, Op
from tailrace.model.subscription import (
    Format,
    PreparedQuery,
    QueryTarget,
    SourceTarget,
    Subscription,
    TableTarget,
    Target,
    sub_id_of,
)

__all__ = ["OPS", "ExportDocument", "ExportedOptions", "ExportedSubscription", "export_of"]

FORMAT_VERSION = 8
"""The newest version that we write; older ones are read alike."""

OPS = {op.word: op for op in Op}
"""Ops by their words."""


class ExportedOptions(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a subscription asks for."""

    format: Format = Format.OBJECTS_JSON
    include_before: bool = False
    include_after: bool = False
    pk: list[Any] | None = None
    pk_range: dict[str, Any] | None = None
    ops: list[str] | None = None
    columns: list[str] | None = None
    where: str | None = None
    cel: str | None = None
    auto_ack: bool = False
    snapshot: bool = False


class ExportedSubscription(Struct, frozen=True, kw_only=True):
    """One subscription."""

    id: str
    acked_offset: int
    paused: bool = False
    options: ExportedOptions = ExportedOptions()
    target: dict[str, Any]


class ExportDocument(Struct, frozen=True, kw_only=True):
    """All subscriptions: result of `cdc.export`, params of `cdc.import`."""

    format_version: int = FORMAT_VERSION
    next_id: int = 1
    subs: list[ExportedSubscription] = []


def export_of(subscriptions: Sequence[Subscription], queries: Sequence[PreparedQuery] = ()) -> ExportDocument:
    """Return the document that holds these subscriptions, and those of the queries that they are for."""
    prepared = {query.query_id: query for query in queries}
    return ExportDocument(
        next_id=max((subscription.id for subscription in subscriptions), default=0) + 1,
        subs=[_exported(subscription, prepared) for subscription in subscriptions if not subscription.transient],
    )


def _exported(subscription: Subscription, prepared: Mapping[str, PreparedQuery]) -> ExportedSubscription:
    wanted = subscription.filter
    return ExportedSubscription(
        id=sub_id_of(subscription.id),
        acked_offset=subscription.cursor,
        paused=subscription.paused,
        options=ExportedOptions(
            format=subscription.format,
            include_before=subscription.include.before,
            include_after=subscription.include.after,
            pk=list(wanted.key) or None,
            pk_range=wanted.bounds,
            ops=None if wanted.ops == ROW_OPS else [op.word for op in wanted.ops],
            columns=list(wanted.columns) or None,
            where=wanted.where,
            cel=wanted.cel,
            auto_ack=subscription.auto_ack,
            snapshot=subscription.snapshot,
        ),
        target=_target_member(subscription.source, subscription.target, prepared),
    )


def _target_member(source: str, target: Target, prepared: Mapping[str, PreparedQuery]) -> dict[str, Any]:
    match target:
        case TableTarget(tables):
            return {"Table": {"db": source, "table": tables[0].wire}}
        case SourceTarget(_, names):
            return {"Source": {"db": source, "tables": list(names)}}
        case QueryTarget(query_id, args, deliver, tables, precise):
            return {
                "Query": {
                    "query_id": query_id,
                    **_query_members(prepared.get(query_id)),
                    "args": list(args),
                    "dep_tables": [f"{source}.{table.wire}" for table in tables],
                    "db": source,
                    "deliver": str(deliver),
                    "precise": precise,
                }
            }


def _query_members(prepared: PreparedQuery | None) -> dict[str, Any]:
    """Return what it takes to prepare a query again: a tree as it came, else the canonical text; and its name."""
    if prepared is None:
        return {}
    is_tree = prepared.original.startswith("{")
    query = msgspec.json.decode(prepared.original) if is_tree else prepared.text
    return {"query": query, "name": prepared.name}
