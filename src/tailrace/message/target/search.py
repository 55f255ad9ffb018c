"""What search engines have in common: rows as documents, and the requests that carry them."""

import hashlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from itertools import groupby

import httpx
import msgspec
from msgspec import structs

from tailrace.message.base import Intake, Message, Refusal, TargetTraits
from tailrace.message.target.option import seconds_of
from tailrace.message.target.trust import is_untrusted, trusting
from tailrace.model.chunk import Change
from tailrace.model.errors import ConfigError, SinkRefusedError, SinkUnavailableError
from tailrace.model.image import lacks_cells
from tailrace.model.op import Op
from tailrace.model.table import Kind, TableName, TableSchema
from tailrace.sink_url import SinkUrl, Spelling

__all__ = [
    "SearchClient",
    "SearchTarget",
    "document_id",
    "is_gone",
    "is_truncation",
    "tables_template",
    "unsent_columns",
    "warn_of_absent",
]

logger = logging.getLogger(__name__)

_ID_BYTES_MAX = 512
_PLAIN_KINDS = {Kind.I64: int, Kind.U64: int, Kind.STR: str, Kind.UUID: str}
"""Kinds of key columns whose values are a document's id as they are, where they are of that type."""

_TIMEOUT_S = 30.0


def document_id(change: Change) -> str:
    """Return the id of a row's document: the key itself where it is one number or text, else the key as JSON.

    What is longer than an id can be, and a text that could be taken for another key, is replaced by its digest.
    """
    columns, values = change.schema.key_columns, msgspec.json.decode(change.key)
    if len(columns) == 1 and type(values[0]) is _PLAIN_KINDS.get(columns[0].kind):
        text = str(values[0])
    else:
        text = change.key.decode()
    if not text or len(text.encode()) > _ID_BYTES_MAX:
        return "sha256-" + hashlib.sha256(change.key).hexdigest()
    return text


def is_gone(message: Message) -> bool:
    """Tell whether a message is the end of its row."""
    return message.value is None or message.change.op is Op.DELETE


def is_truncation(message: Message) -> bool:
    """Tell whether a message is the end of all rows of its table."""
    return message.change.op is Op.TRUNCATE


def unsent_columns(message: Message) -> Sequence[str]:
    """Return the columns of a row after an update that the source sent neither after nor before it.

    They have not changed, so the document keeps what it has of them.
    """
    change = message.change
    if change.op is not Op.UPDATE or change.after is None or not lacks_cells(change.after, change.schema):
        return ()
    assert message.value is not None
    row: dict[str, msgspec.Raw] = msgspec.json.decode(message.value, type=dict[str, msgspec.Raw])
    return [column.name for column in change.schema.columns if column.name not in row]


def warn_of_absent(count: int) -> None:
    """Warn that fields were neither sent nor in the server's documents: those are not there."""
    if count:
        logger.warning("rows lack cells, and there is no document to take them from", extra={"changes": count})


def tables_template(url: SinkUrl) -> str:
    """Return the name of a table's place in a URL.

    Raises:
        ConfigError: There is none.
    """
    template = url.path.removeprefix("/")
    if not url.host or not template or "/" in template:
        raise ConfigError(f"write a search sink as {url.scheme}://HOST:PORT/{{table}}")
    return template


class SearchTarget(ABC):
    """A target with a place for each table, and there a document for each row. Keeps no mark."""

    traits = TargetTraits(Intake.KEYED, envelope="row")

    def __init__(self, client: "SearchClient", named: Spelling) -> None:
        self._client = client
        self._named = named
        self._tables: dict[str, TableName] = {}
        self._known: dict[str, set[str]] = {}
        """Fields that each place is known to have."""

    def open(self, schemas: Sequence[TableSchema]) -> None:
        """Make the places that are missing, and give those that are there the fields that they lack."""
        for schema in schemas:
            self._prepare(schema)

    def mark(self) -> bytes | None:
        """A server keeps none."""
        return None

    def close(self) -> None:
        """Disconnect."""
        self._client.close()
        self._known.clear()

    def send(self, messages: Sequence[Message], mark: bytes) -> Sequence[Refusal]:
        """Send documents, and remove those whose rows are gone. A truncation comes after all that is before it."""
        self._prepare_for(messages)
        refusals: list[Refusal] = []
        begin = 0
        for truncates, run in groupby(messages, is_truncation):
            some = list(run)
            if truncates:
                for one in some:
                    self._empty(one)
            else:
                refusals += [structs.replace(one, place=one.place + begin) for one in self._send_rows(some)]
            begin += len(some)
        return refusals

    def _prepare_for(self, messages: Sequence[Message]) -> None:
        """Prepare for the tables of messages, each version once."""
        for schema in {id(message.change.schema): message.change.schema for message in messages}.values():
            self._prepare(schema)

    def _prepare(self, schema: TableSchema) -> None:
        """Make the place of a table, or the fields that it lacks, once.

        Raises:
            SinkRefusedError: It is the place of another table, or it has no key that identifies its rows: rows with the
                same key would replace each other.
        """
        place = self._named(schema.table)
        if not schema.identity.is_unique:
            reason = "documents need a key that tells rows apart: give the table a primary key or a unique index"
            raise SinkRefusedError(reason, table=schema.table.wire)
        if self._tables.setdefault(place, schema.table) != schema.table:
            both = f"{self._tables[place].wire} and {schema.table.wire}"
            raise SinkRefusedError(
                f"tables {both} would both go into {place!r}: put {{table}} into the sink's URL, or give each a sink"
            )
        fields = self._fields(schema)
        if not fields <= self._known.get(place, set()):
            self._make(place, schema)
            self._known.setdefault(place, set()).update(fields)

    @abstractmethod
    def _send_rows(self, messages: Sequence[Message]) -> Sequence[Refusal]:
        """Send the documents of changes of rows; return what was refused, in order."""

    @abstractmethod
    def _empty(self, truncation: Message) -> None:
        """Remove the documents of all rows that a truncation has removed. Those of newer changes stay."""

    @abstractmethod
    def _fields(self, schema: TableSchema) -> set[str]:
        """Return the names of the fields that the place of a table needs."""

    @abstractmethod
    def _make(self, place: str, schema: TableSchema) -> None:
        """Make the place of a table where it is missing, and the fields that it lacks."""


class SearchClient:
    """Requests to one server, whose failures are those of sinks. For one thread."""

    def __init__(self, url: SinkUrl, port: int, headers: Mapping[str, str], options: Mapping[str, str]) -> None:
        scheme = url.scheme.rpartition("+")[2]
        host = f"[{url.host}]" if ":" in url.host else url.host
        self._base = f"{scheme}://{host}:{url.port or port}"
        self._headers = headers
        self._auth = httpx.BasicAuth(url.user, url.password) if url.user else None
        self._ca = options.get("ca", "")
        self._timeout_s = seconds_of(options, "timeout", _TIMEOUT_S)
        self._client: httpx.Client | None = None

    def request(
        self, method: str, path: str, content: bytes = b"", content_type: str = "application/json", **params: str
    ) -> httpx.Response:
        """Send a request and return its answer, which is none of those that are about all requests.

        Raises:
            SinkUnavailableError: The server cannot be reached, or is busy.
            SinkRefusedError: It does not accept the credentials.
        """
        if self._client is None:
            self._client = self._connected()
        headers = {**self._headers, "content-type": content_type} if content else self._headers
        try:
            answer = self._client.request(
                method, self._base + path, content=content or None, headers=headers, params=params or None
            )
        except httpx.TransportError as error:
            self.close()
            why = "its certificate is not trusted, see the option `ca`" if is_untrusted(error) else type(error).__name__
            raise SinkUnavailableError(f"the search server at {self._base} cannot be reached: {why}") from None
        if answer.status_code in {401, 403}:
            raise SinkRefusedError("the search server does not accept the credentials")
        if answer.status_code == 429 or answer.status_code >= 500:
            raise SinkUnavailableError(f"the search server answers {answer.status_code}")
        return answer

    def close(self) -> None:
        """Disconnect. Safe to repeat."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _connected(self) -> httpx.Client:
        verify = trusting(self._ca) if self._ca else True
        return httpx.Client(auth=self._auth, timeout=self._timeout_s, verify=verify, trust_env=False)
