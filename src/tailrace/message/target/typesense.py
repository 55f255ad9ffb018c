"""Typesense: each row a document of its table's collection."""

import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from tailrace.message.base import Message, Refusal, answer_text
from tailrace.message.target.header import ascii_json
from tailrace.message.target.search import (
    SearchClient,
    SearchTarget,
    document_id,
    is_gone,
    tables_template,
)
from tailrace.model.errors import ConfigError, SinkRefusedError, SinkUnavailableError
from tailrace.model.table import Column, Kind, TableSchema
from tailrace.sink_url import SinkUrl, Spelling

__all__ = ["TypesenseTarget", "build", "collection_fields"]

_PORT = 8108
_ID = "id"
_ID_RENAMED = "id_"
"""Where a column `id` goes that is not the row's key: documents have a text of that name."""

_GONE_AT_ONCE_MAX = 100
"""Most documents that are removed by one request."""

_BUSY = 503

_TYPES = {Kind.BOOL: "bool", Kind.I64: "int64", Kind.F64: "float"}
"""Types of columns; all others are text."""

_UNSEARCHED = frozenset({Kind.ANY, Kind.JSON, Kind.BYTES, Kind.GEOMETRY, Kind.ARRAY})
"""Kinds that are kept, but not searched. Arrays are among them, for the server has none with nulls or dimensions."""

_FIELD = re.compile(r"[Ff]ield `([^`]{1,100})`")


class TypesenseTarget(SearchTarget):
    """A collection for each table.

    Order: of several messages of one row in a batch the last one counts. Duplicates: a document is put in place of the
    one with its id, so giving messages again from anywhere leads to the same state in the end; until then a reader may
    see an older one. Durability: as the server's own log. A refused document is named by the field at fault. Keeps no
    mark. `_offset` in a document is the offset of the change that made it.
    """

    def __init__(self, client: SearchClient, template: str) -> None:
        super().__init__(client, Spelling(template))

    def _send_rows(self, messages: Sequence[Message]) -> Sequence[Refusal]:
        by_collection: dict[str, dict[str, int]] = {}
        for place, message in enumerate(messages):
            last = by_collection.setdefault(self._named(message.change.schema.table), {})
            last[document_id(message.change)] = place
        refusals: list[Refusal] = []
        for collection, last in by_collection.items():
            gone = [id_ for id_, place in last.items() if is_gone(messages[place])]
            kept = {id_: place for id_, place in last.items() if not is_gone(messages[place])}
            refusals += self._put(collection, {place: _document(messages[place], id_) for id_, place in kept.items()})
            for begin in range(0, len(gone), _GONE_AT_ONCE_MAX):
                self._remove(collection, gone[begin : begin + _GONE_AT_ONCE_MAX])
        return sorted(refusals, key=lambda refusal: refusal.place)

    def _put(self, collection: str, documents: dict[int, bytes]) -> list[Refusal]:
        if not documents:
            return []
        path = f"/collections/{quote(collection, safe='')}/documents/import"
        answer = self._client.request("POST", path, b"\n".join(documents.values()), "text/plain", action="upsert")
        if answer.status_code != 200:
            raise SinkRefusedError(f"the search server answers an import with {answer.status_code}")
        results = [msgspec.json.decode(line) for line in answer.content.splitlines()]
        if any(result.get("code") == _BUSY for result in results):
            raise SinkUnavailableError("the search server is busy")
        return [
            Refusal(place, _reason(result), answer_text(str(result.get("error", ""))))
            for place, result in zip(documents, results, strict=True)
            if not result["success"]
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
        plain = [f"`{id_}`" for id_ in ids if _PLAIN_ID.fullmatch(id_)]
        answers = [self._client.request("DELETE", path, filter_by=f"id:=[{','.join(plain)}]")] if plain else []
        odd = (quote(id_, safe="") for id_ in ids if not _PLAIN_ID.fullmatch(id_))
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
            made = {"name": place, "fields": fields}
            answer = self._client.request("POST", "/collections", msgspec.json.encode(made))
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


def _document(message: Message, id_: str) -> bytes:
    """Return the row as a document: whole numbers beyond 64 bits and decimals are text, nulls are left out.

    It is in ASCII: a server that reads a long request in pieces drops characters of which a piece has only a part.
    """
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
    return ascii_json(msgspec.json.encode({**document, _ID: id_, "_offset": message.change.offset})).encode()


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
