"""Subscriptions as seed B keeps them in `cdc_subscriptions.json`. Pure.

Both spellings of a target that are in use are read, `{"kind": "table", …}` and `{"Table": {…}}`; the second is written.
Members that are ours (`where`, `cel`, `auto_ack`, `snapshot`) are left out where they say nothing.
"""

import re
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from tailrace.delivery.name import sub_id_of
from tailrace.model.errors import InvalidRequestError, UnknownTableError
from tailrace.model.number import Offset
from tailrace.model.op import Op
from tailrace.model.subscription import (
    FilterOptions,
    Format,
    Include,
    QueryTarget,
    SourceTarget,
    Subscription,
    SubscriptionDraft,
    SubscriptionId,
    TableTarget,
    Target,
)
from tailrace.subscription.access import Scoped

__all__ = ["ExportDocument", "ExportedOptions", "ExportedSubscription", "draft_of", "export_of"]

FORMAT_VERSION = 8
"""The newest version that we write; older ones are read alike."""

_NUMBER_MAX = 2**63 - 1
_ID = re.compile(r"sub_([0-9a-f]{16}|[0-9]{1,15})", re.ASCII)
_OPS = {op.word: op for op in Op}
_ROW_OPS = (Op.INSERT, Op.UPDATE, Op.DELETE)


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


def export_of(subscriptions: Sequence[Subscription]) -> ExportDocument:
    """Return the document that holds these subscriptions."""
    return ExportDocument(
        next_id=max((subscription.id for subscription in subscriptions), default=0) + 1,
        subs=[_exported(subscription) for subscription in subscriptions if not subscription.transient],
    )


def draft_of(entry: ExportedSubscription, service: Scoped) -> tuple[SubscriptionId, SubscriptionDraft]:
    """Return the number of an exported subscription, and what to keep under it.

    Raises:
        UnknownTableError: Its table is not captured here.
        InvalidRequestError: The entry is not one.
    """
    options = entry.options
    target = _target(entry.target, service)
    source = target.tables[0].source
    if source not in service.logs:
        raise UnknownTableError(source, target.tables[0].wire)
    words = options.ops or [op.word for op in _ROW_OPS]
    if not set(words) <= _OPS.keys():
        raise InvalidRequestError(f"subscription {entry.id[:64]!r} has unknown `ops`")
    draft = SubscriptionDraft(
        source=source,
        target=target,
        filter=FilterOptions(
            tuple(sorted({_OPS[word] for word in words})),
            key=tuple(options.pk or ()),
            bounds=options.pk_range,
            columns=tuple(options.columns or ()),
            where=options.where,
            cel=options.cel,
        ),
        include=Include(before=options.include_before, after=options.include_after),
        format=options.format,
        cursor=Offset(min(max(0, entry.acked_offset), service.logs[source].head)),
        paused=entry.paused,
        auto_ack=options.auto_ack,
        snapshot=options.snapshot,
    )
    return _number(entry.id), draft


def _exported(subscription: Subscription) -> ExportedSubscription:
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
            ops=None if wanted.ops == _ROW_OPS else [op.word for op in wanted.ops],
            columns=list(wanted.columns) or None,
            where=wanted.where,
            cel=wanted.cel,
            auto_ack=subscription.auto_ack,
            snapshot=subscription.snapshot,
        ),
        target=_target_member(subscription.source, subscription.target),
    )


def _target_member(source: str, target: Target) -> dict[str, Any]:
    match target:
        case TableTarget(tables):
            return {"Table": {"db": source, "table": tables[0].wire}}
        case SourceTarget(_, names):
            return {"Source": {"db": source, "tables": list(names)}}
        case QueryTarget(query_id, args, tables=tables):
            dependencies = [f"{source}.{table.wire}" for table in tables]
            return {"Query": {"query_id": query_id, "args": list(args), "dep_tables": dependencies}}


def _target(member: dict[str, Any], service: Scoped) -> TableTarget | SourceTarget:
    match member.get("Source"):
        case {"db": str(db), "tables": list(names)} if all(isinstance(name, str) for name in names):
            return SourceTarget(db, tuple(names))
    table = member.get("Table") if "Table" in member else member if member.get("kind") == "table" else None
    match table:
        case {"db": str(db), "table": str(name)}:
            return TableTarget((service.table(db, name).table,))
    raise InvalidRequestError("only subscriptions to tables can be imported: prepare queries here and subscribe anew")


def _number(sub_id: str) -> SubscriptionId:
    match = _ID.fullmatch(sub_id)
    number = 0 if match is None else int(match[1], 16 if len(match[1]) == 16 else 10)
    if not 1 <= number <= _NUMBER_MAX:
        raise InvalidRequestError(f"{sub_id[:64]!r} is not the id of a subscription")
    return SubscriptionId(number)
