"""OpenSearch and Elasticsearch: each row a document, whose version is the offset of the change that made it."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from tailrace.message.base import Message, Refusal, answer_text
from tailrace.message.target.search import (
    SearchClient,
    SearchTarget,
    document_id,
    is_gone,
    tables_template,
    unsent_columns,
    warn_of_absent,
)
from tailrace.model.errors import SinkRefusedError, SinkUnavailableError
from tailrace.model.table import Column, Kind, TableSchema
from tailrace.sink_url import SinkUrl, Spelling

__all__ = ["OpenSearchTarget", "build", "index_body", "mapping"]

_PORT = 9200
_REQUEST_BYTES_MAX = 8 << 20
"""Most bytes of documents in one request, but for a single document that has more."""

_NEWER = 409
_NOT_FOUND = 404
_TOO_LARGE = 413
_ODD = re.compile(r'[\\/*?"<>|\s,#:]')
"""What the name of an index cannot hold."""

_BUSY = frozenset({429, 502, 503, 504})

_DATE_FORMATS = "strict_date_optional_time||yyyy-MM-dd HH:mm:ss.SSSSSS||yyyy-MM-dd HH:mm:ss.SSS||yyyy-MM-dd HH:mm:ss"

_UNSEARCHED = {"type": "object", "enabled": False}
_WORD = {"type": "keyword"}
_PROSE = {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 256}}}

_MAPPINGS: dict[Kind, dict[str, Any]] = {
    Kind.ANY: _UNSEARCHED,
    Kind.BOOL: {"type": "boolean"},
    Kind.I64: {"type": "long"},
    Kind.U64: {"type": "unsigned_long"},
    Kind.F64: {"type": "double"},
    Kind.DEC: {"type": "double"},
    Kind.STR: _PROSE,
    Kind.BYTES: {"type": "binary"},
    Kind.JSON: _UNSEARCHED,
    Kind.DATE: {"type": "date", "format": _DATE_FORMATS, "ignore_malformed": True},
    Kind.TIME: _WORD,
    Kind.DATETIME: {"type": "date", "format": _DATE_FORMATS, "ignore_malformed": True},
    Kind.UUID: _WORD,
    Kind.INTERVAL: _WORD,
    Kind.ENUM: _WORD,
    Kind.NETWORK: _WORD,
    Kind.BIT: _PROSE,
    Kind.RANGE: _PROSE,
    Kind.COMPOSITE: _PROSE,
    Kind.FOREIGN: _PROSE,
    Kind.GEOMETRY: {"type": "binary"},
}
"""How each kind is indexed. What may be longer than a keyword can be is text; see `_field` for arrays."""

_SCROLL = "1m"
"""How long the server keeps the list of documents that a truncation removes, from one page to the next."""

_HELD_AT_ONCE_MAX = 500
"""Most documents that are read by one request."""

_Row = dict[str, msgspec.Raw]
"""A document: its fields as they are written."""

_EVERY_ID = b'{"query":{"match_all":{}},"_source":false,"size":1000,"sort":["_doc"]}'


class _Document(msgspec.Struct, rename={"index": "_index", "id": "_id", "source": "_source"}):
    index: str
    id: str
    found: bool = False
    source: _Row = {}


class _Documents(msgspec.Struct):
    docs: list[_Document]


class OpenSearchTarget(SearchTarget):
    """An index for each table.

    Order and duplicates: a document's version is the offset of its change (`version_type` external_gte), so the server
    itself refuses what is older than what it has: giving messages again, or late, changes nothing. Durability: as
    the server's `index.translog.durability` says, by default on disk. A refused document is named by the kind of error
    that the server tells; all others of its request are kept. Keeps no mark and needs none.

    Columns that the source did not send: the server's own partial update knows no external versions, so the document is
    read, completed, and put whole with the version of the change. Should it be newer already, that is refused as ever.
    """

    def __init__(self, client: SearchClient, template: str) -> None:
        super().__init__(client, Spelling(template.lower(), lambda text: _ODD.sub("_", text).lower()))

    def _send_rows(self, messages: Sequence[Message]) -> Sequence[Refusal]:
        refusals: list[Refusal] = []
        for entries in self._requests(messages, self._completed(messages)):
            refusals += self._bulk(entries)
        return refusals

    def _completed(self, messages: Sequence[Message]) -> Mapping[int, bytes]:
        """Return the documents of rows that were sent in part, whole, by the places of their messages.

        What a row lacks is what the message before it of the same row has, else what the server's document has.
        """
        lacking = {place: names for place, one in enumerate(messages) if (names := unsent_columns(one))}
        if not lacking:
            return {}
        wanted = {self._where(messages[place]) for place in lacking}
        rows: dict[tuple[str, str], _Row | None] = dict(self._held(sorted(wanted)))
        made: dict[int, bytes] = {}
        absent = 0
        for place, message in enumerate(messages):
            where = self._where(message)
            if where not in wanted:
                continue
            row = None if is_gone(message) else msgspec.json.decode(message.value or b"{}", type=_Row)
            if row is not None and place in lacking:
                held = rows.get(where)
                absent += held is None
                row |= {name: held[name] for name in lacking[place] if name in held} if held else {}
                made[place] = msgspec.json.encode(row)
            rows[where] = row
        warn_of_absent(absent)
        return made

    def _held(self, wanted: Sequence[tuple[str, str]]) -> Iterator[tuple[tuple[str, str], _Row]]:
        """Yield the documents that the server has of these indexes and ids."""
        for begin in range(0, len(wanted), _HELD_AT_ONCE_MAX):
            docs = [{"_index": index, "_id": id_} for index, id_ in wanted[begin : begin + _HELD_AT_ONCE_MAX]]
            answer = self._client.request("POST", "/_mget", msgspec.json.encode({"docs": docs}))
            if answer.status_code != 200:
                raise SinkRefusedError(f"the search server answers {_type(answer)} where documents are to be read")
            for one in msgspec.json.decode(answer.content, type=_Documents).docs:
                if one.found:
                    yield (one.index, one.id), one.source

    def _where(self, message: Message) -> tuple[str, str]:
        """Return the index and the id of a message's document."""
        return self._named(message.change.schema.table), document_id(message.change)

    def _empty(self, truncation: Message) -> None:
        """Delete all documents of a table, each with the truncation's version: those of newer changes stay."""
        index = self._named(truncation.change.schema.table)
        path = f"/{quote(index, safe='')}"
        self._answer("POST", f"{path}/_refresh", b"")
        page = self._answer("POST", f"{path}/_search", _EVERY_ID, scroll=_SCROLL)
        while hits := page["hits"]["hits"]:
            where = {"_index": index, "version": truncation.change.offset, "version_type": "external_gte"}
            entries = [(0, b"%s\n" % msgspec.json.encode({"delete": {**where, "_id": hit["_id"]}})) for hit in hits]
            if self._bulk(entries):
                raise SinkRefusedError(f"the search server refuses to remove documents of the index {index!r}")
            following = msgspec.json.encode({"scroll": _SCROLL, "scroll_id": page["_scroll_id"]})
            page = self._answer("POST", "/_search/scroll", following)

    def _answer(self, method: str, path: str, content: bytes, **params: str) -> Any:
        answer = self._client.request(method, path, content, **params)
        if answer.status_code != 200:
            raise SinkRefusedError(f"the search server answers {_type(answer)} where documents are to be removed")
        return msgspec.json.decode(answer.content)

    def _bulk(self, entries: Sequence[tuple[int, bytes]]) -> list[Refusal]:
        """Send a bulk request, in halves if it is too large for the server; return what was refused."""
        answer = self._client.request("POST", "/_bulk", b"".join(lines for _, lines in entries), "application/x-ndjson")
        if answer.status_code == _TOO_LARGE:
            half = len(entries) // 2
            if not half:
                return [Refusal(entries[0][0], "larger than the search server takes")]
            return self._bulk(entries[:half]) + self._bulk(entries[half:])
        if answer.status_code != 200:
            raise SinkRefusedError(f"the search server answers a bulk request with {answer.status_code}")
        return _judged([place for place, _ in entries], msgspec.json.decode(answer.content))

    def _requests(
        self, messages: Sequence[Message], completed: Mapping[int, bytes]
    ) -> Iterator[list[tuple[int, bytes]]]:
        """Yield what goes into each bulk request: for each message its place and its lines."""
        entries: list[tuple[int, bytes]] = []
        size = 0
        for place, message in enumerate(messages):
            index, id_ = self._where(message)
            where = {
                "_index": index,
                "_id": id_,
                "version": message.change.offset,
                "version_type": "external_gte",
            }
            if is_gone(message):
                lines = b"%s\n" % msgspec.json.encode({"delete": where})
            else:
                assert message.value is not None
                document = completed.get(place, message.value)
                lines = b"%s\n%s\n" % (msgspec.json.encode({"index": where}), document)
            entries.append((place, lines))
            size += len(lines)
            if size >= _REQUEST_BYTES_MAX:
                yield entries
                entries, size = [], 0
        if entries:
            yield entries

    def _fields(self, schema: TableSchema) -> set[str]:
        return {column.name for column in schema.columns}

    def _make(self, place: str, schema: TableSchema) -> None:
        path = f"/{quote(place, safe='')}"
        if place not in self._known:
            answer = self._client.request("PUT", path, msgspec.json.encode(index_body(schema)))
            if answer.status_code not in {200, 201} and not _is_there(answer.content):
                raise SinkRefusedError(f"the index {place!r} cannot be made: the search server answers {_type(answer)}")
        evolved = self._client.request("PUT", f"{path}/_mapping", msgspec.json.encode(mapping(schema)))
        if evolved.status_code != 200:
            raise SinkRefusedError(f"the index {place!r} refuses columns: the search server answers {_type(evolved)}")


def mapping(schema: TableSchema) -> dict[str, Any]:
    """Return how the columns of a table are indexed."""
    return {"properties": {column.name: _field(column) for column in schema.columns}}


def _field(column: Column) -> dict[str, Any]:
    """Return how a column is indexed: an array as its elements are, of all its dimensions, for a search finds each."""
    if column.kind is not Kind.ARRAY:
        return _MAPPINGS[column.kind]
    return _UNSEARCHED if column.element is None else _field(column.element)


def index_body(schema: TableSchema) -> dict[str, Any]:
    """Return what an index of a table is made of. It remembers deletions for a while, for what comes late."""
    return {"settings": {"index": {"gc_deletes": "1h"}}, "mappings": mapping(schema)}


def _judged(places: Sequence[int], answer: Any) -> list[Refusal]:
    """Return what a bulk request was refused.

    Raises:
        SinkUnavailableError: The server was too busy for some of it.
    """
    refusals = []
    busy = 0
    for place, item in zip(places, answer["items"], strict=True):
        (op, result), *_ = item.items()
        status = result["status"]
        if status < 300 or status == _NEWER or (status == _NOT_FOUND and op == "delete"):
            continue
        if status in _BUSY:
            busy = status
        else:
            error = result["error"]
            said = answer_text(str(error.get("reason", "")))
            refusals.append(Refusal(place, f"the search server answers {error['type']}", said))
    if busy:
        raise SinkUnavailableError(f"the search server answers {busy}")
    return refusals


def _type(answer: Any) -> str:
    """Return the kind of an error; its reason may hold values of rows."""
    try:
        return str(msgspec.json.decode(answer.content)["error"]["type"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return str(answer.status_code)


def _is_there(content: bytes) -> bool:
    return b"resource_already_exists_exception" in content


def build(url: SinkUrl, name: str) -> OpenSearchTarget:
    """Return the target of an `opensearch+https` or `opensearch+http` URL.

    Raises:
        ConfigError: Something in it is wrong.
    """
    options = url.only("ca", "api_key", "timeout")
    headers = {"authorization": f"ApiKey {options['api_key']}"} if "api_key" in options else {}
    return OpenSearchTarget(SearchClient(url, _PORT, headers, options), tables_template(url))
