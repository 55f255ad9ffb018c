"""Typesense: each row a document of its table's collection."""

import re
from collections.abc import Sequence
from itertools import groupby
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import Struct

from tailrace.message.base import Message, Refusal, answer_text
from tailrace.message.target.header import ascii_json
from tailrace.message.target.search import (
    SearchClient,
    SearchTarget,
    document_id,
    is_gone,
    tables_template,
    unsent_columns,
    warn_of_absent,
)
from tailrace.model.errors import ConfigError, SinkRefusedError, SinkUnavailableError
from tailrace.model.table import Column, Kind, TableSchema
from tailrace.sink_url import SinkUrl, Spelling

__all__ = ["TypesenseTarget", "build", "collection_fields"]

_PORT = 8108
_ID = "id"
_ID_RENAMED = "id_"
"""Where a column `id` goes that is not the row's key: documents have a text of that name."""

_IDS_AT_ONCE_MAX = 100
"""Most documents that are removed, or read, by one request."""

_BUSY = 503

_TYPES = {Kind.BOOL: "bool", Kind.I64: "int64", Kind.F64: "float"}
"""Types of columns; all others are text."""

_UNSEARCHED = frozenset({Kind.ANY, Kind.JSON, Kind.BYTES, Kind.GEOMETRY, Kind.ARRAY})
"""Kinds that are kept, but not searched. Arrays are among them, for the server has none with nulls or dimensions."""

_FIELD = re.compile(r"[Ff]ield `([^`]{1,100})`")


class _Made(Struct, frozen=True):
    """What becomes of a row: its document, None where it is gone, and the places of the messages that it is made of."""

    document: dict[str, Any] | None
    places: list[int]


class TypesenseTarget(SearchTarget):
    """A collection for each table.

    Order: of several messages of one row in a batch the last one counts. Duplicates: a document is put in place of the
    one with its id, so giving messages again from anywhere leads to the same state in the end; until then a reader may
    see an older one. Durability: as the server's own log. A refused document is named by the field at fault. Keeps no
    mark. `_offset` in a document is the offset of the change that made it.

    Columns that the source did not send: the document is read, completed, and put whole. A document that is made of
    several messages of a batch is refused with all of them.
    """

    def __init__(self, client: SearchClient, template: str) -> None:
        super().__init__(client, Spelling(template))

    def _send_rows(self, messages: Sequence[Message]) -> Sequence[Refusal]:
        by_collection = self._made(messages)
        refusals: list[Refusal] = []
        for collection, rows in by_collection.items():
            gone = [id_ for id_, row in rows.items() if row.document is None]
            refusals += self._put(collection, [row for row in rows.values() if row.document is not None])
            for begin in range(0, len(gone), _IDS_AT_ONCE_MAX):
                self._remove(collection, gone[begin : begin + _IDS_AT_ONCE_MAX])
        return sorted(refusals, key=lambda refusal: refusal.place)

    def _made(self, messages: Sequence[Message]) -> dict[str, dict[str, "_Made"]]:
        """Return what becomes of each row, by collection and id: what the last of its messages says.

        What a row lacks is what the message before it of the same row has, else what the server's document has.
        """
        lacking = {place: names for place, one in enumerate(messages) if (names := unsent_columns(one))}
        held = self._held([messages[place] for place in lacking])
        by_collection: dict[str, dict[str, _Made]] = {}
        absent = 0
        for place, message in enumerate(messages):
            collection, id_ = self._where(message)
            rows = by_collection.setdefault(collection, {})
            document = None if is_gone(message) else _document(message, id_)
            places = [place]
            if document is not None and place in lacking:
                before = rows.get(id_) or _Made(held.get((collection, id_)), [])
                absent += before.document is None
                names = _field_names(lacking[place], message.change.schema)
                older = before.document or {}
                document = {**{name: older[name] for name in names if name in older}, **document}
                places = [*before.places, place]
            rows[id_] = _Made(document, places)
        warn_of_absent(absent)
        return by_collection

    def _where(self, message: Message) -> tuple[str, str]:
        """Return the collection and the id of a message's document."""
        return self._named(message.change.schema.table), document_id(message.change)

    def _held(self, messages: Sequence[Message]) -> dict[tuple[str, str], dict[str, Any]]:
        """Return the documents that the server has of the rows of messages, by collection and id."""
        found: dict[tuple[str, str], dict[str, Any]] = {}
        for collection, pairs in groupby(sorted({self._where(one) for one in messages}), lambda pair: pair[0]):
            ids = [id_ for _, id_ in pairs]
            path = f"/collections/{quote(collection, safe='')}/documents"
            for begin in range(0, len(ids), _IDS_AT_ONCE_MAX):
                plain, odd = _filter_of(ids[begin : begin + _IDS_AT_ONCE_MAX])
                answers = [self._client.request("GET", f"{path}/export", filter_by=plain)] if plain else []
                answers += [self._client.request("GET", f"{path}/{id_}") for id_ in odd]
                for answer in answers:
                    if answer.status_code not in {200, 404}:
                        raise SinkRefusedError(f"the search server answers {answer.status_code} to a read")
                    lines = answer.content.splitlines() if answer.status_code == 200 else []
                    documents = [msgspec.json.decode(line, type=dict[str, Any]) for line in lines if line]
                    found |= {(collection, document[_ID]): document for document in documents}
        return found

    def _put(self, collection: str, rows: Sequence["_Made"]) -> list[Refusal]:
        if not rows:
            return []
        lines = b"\n".join(_encoded(row.document) for row in rows if row.document is not None)
        path = f"/collections/{quote(collection, safe='')}/documents/import"
        answer = self._client.request("POST", path, lines, "text/plain", action="upsert")
        if answer.status_code != 200:
            raise SinkRefusedError(f"the search server answers an import with {answer.status_code}")
        results = [msgspec.json.decode(line) for line in answer.content.splitlines()]
        if any(result.get("code") == _BUSY for result in results):
            raise SinkUnavailableError("the search server is busy")
        return [
            Refusal(place, _reason(result), answer_text(str(result.get("error", ""))))
            for row, result in zip(rows, results, strict=True)
            if not result["success"]
            for place in row.places
        ]

    def _empty(self, truncation: Message) -> None:
        """Remove the documents that a truncation has removed the rows of: those of newer changes stay."""
        collection = self._named(truncation.change.schema.table)
        path = f"/collections/{quote(collection, safe='')}/documents"
        answer = self._client.request("DELETE", path, filter_by=f"_offset:<={truncation.change.offset}")
        if answer.status_code != 200:
            raise SinkRefusedError(f"the search server answers a removal with {answer.status_code}")

    def _remove(self, collection: str, ids: Sequence[str]) -> None:
        path = f"/collections/{quote(collection, safe='')}/documents"
        plain, odd = _filter_of(ids)
        answers = [self._client.request("DELETE", path, filter_by=plain)] if plain else []
        answers += [self._client.request("DELETE", f"{path}/{id_}") for id_ in odd]
        for answer in answers:
            if answer.status_code not in {200, 404}:
                raise SinkRefusedError(f"the search server answers a removal with {answer.status_code}")

    def _fields(self, schema: TableSchema) -> set[str]:
        return {field["name"] for field in collection_fields(schema)}

    def _make(self, place: str, schema: TableSchema) -> None:
        fields = collection_fields(schema)
        path = f"/collections/{quote(place, safe='')}"
        answer = self._client.request("GET", path)
        if answer.status_code == 404:
            collection = {"name": place, "fields": fields}
            answer = self._client.request("POST", "/collections", msgspec.json.encode(collection))
        else:
            there = {field["name"] for field in msgspec.json.decode(answer.content).get("fields", ())}
            missing = [field for field in fields if field["name"] not in there]
            if missing:
                answer = self._client.request("PATCH", path, msgspec.json.encode({"fields": missing}))
        if answer.status_code not in {200, 201, 409}:
            raise SinkRefusedError(
                f"the collection {place!r} cannot be made: the search server answers {answer.status_code}"
            )


_PLAIN_ID = re.compile(r"[A-Za-z0-9_.-]+")
"""Ids that a filter can name as they are. Dots among them: as a part of a path they would lead elsewhere."""


def _filter_of(ids: Sequence[str]) -> tuple[str, list[str]]:
    """Return a filter for documents by their ids, empty for none, and the ids that no filter can name, for a path."""
    plain = [f"`{id_}`" for id_ in ids if _PLAIN_ID.fullmatch(id_)]
    odd = [quote(id_, safe="") for id_ in ids if not _PLAIN_ID.fullmatch(id_)]
    return f"id:=[{','.join(plain)}]" if plain else "", odd


def collection_fields(schema: TableSchema) -> list[dict[str, Any]]:
    """Return the fields of a table's collection. Columns without a type of their own are kept, but not searched."""
    fields: list[dict[str, Any]] = [{"name": "_offset", "type": "int64"}]
    for column in schema.columns:
        name = _field_name(column, schema)
        if name != _ID and column.kind not in _UNSEARCHED:
            fields.append({"name": name, "type": _TYPES.get(column.kind, "string"), "optional": True})
    return fields


def _field_name(column: Column, schema: TableSchema) -> str:
    return _ID_RENAMED if column.name == _ID and schema.key != (_ID,) else column.name


def _field_names(names: Sequence[str], schema: TableSchema) -> list[str]:
    """Return the fields that these columns go into."""
    return [_field_name(column, schema) for column in schema.columns if column.name in names]


def _document(message: Message, id_: str) -> dict[str, Any]:
    """Return the row as a document: whole numbers beyond 64 bits and decimals are text, nulls are left out."""
    assert message.value is not None
    row: dict[str, Any] = msgspec.json.decode(message.value)
    schema = message.change.schema
    document: dict[str, Any] = {}
    for name, value in row.items():
        column = schema.column(name)
        if value is None:
            continue
        if column is None:
            document[name] = value
        elif column.kind is Kind.U64 and isinstance(value, int):
            document[_field_name(column, schema)] = str(value)
        else:
            document[_field_name(column, schema)] = value
    return {**document, _ID: id_, "_offset": message.change.offset}


def _encoded(document: dict[str, Any]) -> bytes:
    """Return a document in ASCII: a server that reads a long request in pieces drops characters that are cut by one."""
    return ascii_json(msgspec.json.encode(document)).encode()


def _reason(result: dict[str, Any]) -> str:
    """Return why a document was refused, by the field at fault; the server's own words may hold values."""
    field = _FIELD.search(str(result.get("error", "")))
    named = f": the field {field[1]!r} is at fault" if field else ""
    return f"the search server answers {result.get('code', 400)}{named}"


def build(url: SinkUrl, name: str) -> TypesenseTarget:
    """Return the target of a `typesense+https` or `typesense+http` URL.

    Raises:
        ConfigError: Something in it is wrong.
    """
    options = url.only("ca", "api_key", "timeout")
    key = options.get("api_key") or url.password
    if not key:
        raise ConfigError(f"write a Typesense sink as {url.scheme}://HOST:PORT/{{table}}?api_key=${{KEY}}")
    client = SearchClient(
        SinkUrl(url.scheme, url.path, url.host, url.port), _PORT, {"x-typesense-api-key": key}, options
    )
    return TypesenseTarget(client, tables_template(url))
