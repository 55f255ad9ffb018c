"""Taking up the subscriptions of a `cdc_subscriptions.json`: all that it holds, or nothing.

Both spellings of a target that are in use are read, `{"kind": "table", …}` and `{"Table": {…}}`, and so for queries.
"""

import re
from typing import Any

import msgspec

from tailrace.interface.skeindb.export import OPS, ExportDocument, ExportedSubscription
from tailrace.interface.skeindb.query_message import literals_of
from tailrace.model.errors import InvalidRequestError
from tailrace.model.number import Offset
from tailrace.model.op import ROW_OPS
from tailrace.model.subscription import (
    Deliver,
    FilterOptions,
    Include,
    PreparedQuery,
    QueryTarget,
    SourceTarget,
    SubscriptionDraft,
    SubscriptionId,
    TableTarget,
    Target,
)
from tailrace.subscription.access import Scoped

__all__ = ["restore"]

_NUMBER_MAX = 2**63 - 1
_ID = re.compile(r"sub_([0-9a-f]{16}|[0-9]{1,15})", re.ASCII)


async def restore(document: ExportDocument, service: Scoped) -> int:
    """Keep the subscriptions of a document under their own numbers, and prepare their queries; return how many.

    Raises:
        UnknownTableError: A table or a source is not captured here.
        UnknownQueryError: A query is not known here, and the document does not have its text.
        InvalidRequestError: An entry is not one, or asks for what cannot be had here.
    """
    queries = _Queries(service)
    drafts = {_number(entry.id): await _draft(entry, service, queries) for entry in document.subs}
    await service.restore(drafts, list(queries.by_id.values()))
    return len(drafts)


class _Queries:
    """The queries of a document, each read once however many subscriptions are for it."""

    def __init__(self, service: Scoped) -> None:
        self.by_id: dict[str, PreparedQuery] = {}
        self._by_text: dict[bytes, PreparedQuery] = {}
        self._service = service

    async def get(self, member: dict[str, Any]) -> PreparedQuery:
        queries, query, name = self._service.queries, member.get("query"), member.get("name", "")
        source = member.get("db", _source_of(member.get("dep_tables")))
        if queries is None or not isinstance(source, str | None) or not isinstance(name, str):
            raise InvalidRequestError("a subscription to a query has a `db` and a `name` that are text")
        match query:
            case None:
                return queries.get(str(member.get("query_id")))
            case str() | dict():
                key = msgspec.json.encode([query, name, source])
                if key not in self._by_text:
                    prepared = await queries.draft(query, name=name, source=source, pending=self.by_id)
                    self._by_text[key] = self.by_id[prepared.query_id] = prepared
                return self._by_text[key]
            case _:
                raise InvalidRequestError("the `query` of a subscription is SQL text or a tree")


async def _draft(entry: ExportedSubscription, service: Scoped, queries: _Queries) -> SubscriptionDraft:
    options = entry.options
    source, target = await _target(entry.target, service, queries)
    words = options.ops or [op.word for op in ROW_OPS]
    if not set(words) <= OPS.keys():
        raise InvalidRequestError(f"subscription {entry.id[:64]!r} has unknown `ops`")
    if options.snapshot and isinstance(target, QueryTarget):
        raise InvalidRequestError(f"subscription {entry.id[:64]!r}: a query has no `snapshot`")
    return SubscriptionDraft(
        source=source,
        target=target,
        filter=FilterOptions(
            tuple(sorted({OPS[word] for word in words})),
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


async def _target(member: dict[str, Any], service: Scoped, queries: _Queries) -> tuple[str, Target]:
    kind = member.get("kind")
    match member:
        case {"Table": {"db": str(db), "table": str(name)}}:
            source = service.database(db)
            return source, TableTarget((service.table(source, name).table,))
        case {"db": str(db), "table": str(name)} if kind == "table":
            source = service.database(db)
            return source, TableTarget((service.table(source, name).table,))
        case {"Source": {"db": str(db), "tables": list(names)}} if all(isinstance(name, str) for name in names):
            source = service.database(db)
            return source, SourceTarget(source, tuple(names))
        case {"Query": dict(query)}:
            return await _query_target(query, queries)
        case {"query_id": str()} if kind == "query":
            return await _query_target(member, queries)
    raise InvalidRequestError("a subscription has a `target`: a table with `db` and `table`, or a query")


async def _query_target(member: dict[str, Any], queries: _Queries) -> tuple[str, QueryTarget]:
    prepared = await queries.get(member)
    args = member.get("args", [])
    if not isinstance(args, list):
        raise InvalidRequestError("the `args` of a subscription are a list")
    try:
        deliver = Deliver(member.get("deliver", Deliver.INVALIDATE))
    except ValueError:
        raise InvalidRequestError(f"`deliver` is one of {', '.join(Deliver)}") from None
    precise = member.get("precise", False)
    if not isinstance(precise, bool):
        raise InvalidRequestError("`precise` is true or false")
    return prepared.source, QueryTarget(prepared.query_id, literals_of(args), deliver, precise=precise)


def _source_of(tables: Any) -> str | None:
    """Return the source that the first of a query's tables is in: they are named `db.table`."""
    match tables:
        case [str(first), *_]:
            return first.partition(".")[0]
    return None


def _number(sub_id: str) -> SubscriptionId:
    match = _ID.fullmatch(sub_id)
    number = 0 if match is None else int(match[1], 16 if len(match[1]) == 16 else 10)
    if not 1 <= number <= _NUMBER_MAX:
        raise InvalidRequestError(f"{sub_id[:64]!r} is not the id of a subscription")
    return SubscriptionId(number)
