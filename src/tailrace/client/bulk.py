"""The bulk interface of a server, blocking: what there is to read, where to cut it, and the changes as Arrow batches.

Uses the HTTP client of the standard library, which reads bodies without copying them about.
"""

import http.client
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec
import pyarrow as pa
from msgspec import Struct

from tailrace.client.errors import BadAnswer, ClientError, ConnectionFailed, Refused
from tailrace.client.rpc import PATH, decode_answer, encode_call, error_of_status, unreached
from tailrace.model.errors import BehindHorizonError, ConfigError
from tailrace.model.number import Index, Offset, SchemaId
from tailrace.model.table import TableSchema
from tailrace.model.wanted import Conditions
from tailrace.retry import Backoff, Retry

__all__ = ["BulkClient", "BulkInfo", "BulkOptions", "error_of_answer"]

_THROUGH = "Tailrace-Through"

_SCHEMAS_KEY = b"tailrace.schemas"
_BUFFER_BYTES = 1 << 20

_R = TypeVar("_R")


class BulkOptions(Struct, frozen=True):
    """Settings of a bulk client."""

    timeout_s: float = 60.0
    """Longest silence before a connection counts as broken."""

    outage_s_max: float = 30.0
    """Longest time that a request is tried again while the server cannot be reached."""

    backoff: Backoff = Backoff(first_s=0.05, longest_s=2.0)
    """Pauses between two tries."""

    compression: str = "none"
    """How batches are compressed on their way: `none`, `lz4` or `zstd`."""


class _Version(Struct, frozen=True):
    id: SchemaId
    schema: TableSchema


class _Table(Struct, frozen=True):
    table: str
    versions: tuple[_Version, ...]


class BulkInfo(Struct, frozen=True):
    """What there is to read of a source. `after` is the offset of the place that was asked for."""

    head: Offset
    horizon: Offset
    last_index: Index
    tables: tuple[_Table, ...]
    after: Offset | None = None

    def schemas(self) -> dict[SchemaId, TableSchema]:
        """Return all schema versions by number."""
        return {version.id: version.schema for table in self.tables for version in table.versions}

    def newest(self) -> list[TableSchema]:
        """Return the newest schema of each table."""
        return [table.versions[-1].schema for table in self.tables]


class _Cuts(Struct, frozen=True):
    cuts: list[Offset]


class _Subscribed(Struct, frozen=True):
    sub_id: str
    offset: Offset


class BulkClient:
    """A client of the bulk interface of one server. For one thread; keeps one connection for what is not a stream.

    Raises:
        ConfigError: The URL is not the address of a server.
    """

    def __init__(self, url: str, token: str | None = None, options: BulkOptions | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"{url!r} is not the address of a server: write e.g. http://127.0.0.1:8080")
        self.url = url.rstrip("/")
        self._secure = parts.scheme == "https"
        self._host, self._port, self._prefix = parts.hostname, parts.port, parts.path.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._options = options or BulkOptions()
        self._connection: http.client.HTTPConnection | None = None

    def close(self) -> None:
        """Close the connection. The next request makes a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def info(
        self,
        source: str,
        tables: Sequence[str] = (),
        place: str | None = None,
        *,
        beyond: int | None = None,
        wait_s: float = 0.0,
    ) -> BulkInfo:
        """Ask what there is to read; `place` is `earliest`, `latest`, an offset or a time.

        With `beyond`, the answer comes when the head is beyond that offset, or after `wait_s`.

        Raises:
            ClientError: The server cannot be reached, or refused.
        """
        params: dict[str, Any] = {"tables": list(tables), **({} if place is None else {"from": place})}
        if beyond is not None:
            params |= {"beyond": beyond, "wait_ms": round(wait_s * 1000)}
        return self._get(_path(source), params, BulkInfo)

    def cuts(
        self,
        source: str,
        after: int,
        through: int,
        *,
        changes: int,
        bytes_max: int | None = None,
        count: int | None = None,
    ) -> list[Offset]:
        """Ask where the interval can be cut; see `tailrace.subscription.bulk.find_cuts`.

        Raises:
            BehindHorizonError: The change after `after` was removed by retention.
            ClientError: The server cannot be reached, or refused.
        """
        query = {"after": after, "through": through, "changes": changes, "bytes": bytes_max, "count": count}
        params = {name: value for name, value in query.items() if value is not None}
        return self._get(_path(source, "cuts"), params, _Cuts).cuts

    def subscribe(self, source: str, tables: Sequence[str], place: str | int) -> tuple[str, Offset]:
        """Make a durable subscription; return its id and the offset after which it begins.

        Raises:
            ClientError: The server cannot be reached, or refused.
        """
        body = msgspec.json.encode({"tables": list(tables), "from": place})
        self._retried(self._reach)
        subscribed = self._ask(
            "POST", _path(source, "subscriptions"), body, _Subscribed
        )  # once: tried twice, it may be two
        return subscribed.sub_id, subscribed.offset

    def call(self, method: str, params: Mapping[str, Any], *, again: bool = False) -> Any:
        """Call a method of the RPC interface once; return its result. One that may be called `again` is, where need be.

        Raises:
            ClientError: The server cannot be reached, or refused.
        """
        status, body = self._exchange("POST", PATH, encode_call(method, params), again=again)
        return decode_answer(status, body, Any)

    def batches(
        self,
        source: str,
        after: int,
        through: int,
        tables: Sequence[str] = (),
        conditions: Conditions | None = None,
    ) -> Iterator[tuple[Mapping[SchemaId, TableSchema], pa.RecordBatch]]:
        """Yield the changes of an interval in order, with the schema versions that they refer to.

        A stream that breaks off is asked for again from where it ended. Changes that do not meet the `conditions` may
        be among them.

        Raises:
            BehindHorizonError: Retention has removed a change before it was read.
            ClientError: The server cannot be reached, or refused.
        """
        params = {"through": through, "tables": list(tables), "compression": self._options.compression}
        params |= _params(conditions)
        place, retry = after, self._retry()
        while True:
            try:
                for schemas, batch in self._stream(_path(source, "changes"), {"after": place, **params}):
                    if batch.num_rows:
                        place = batch.column(0)[batch.num_rows - 1].as_py()
                        yield schemas, batch
                    retry.recovered()
                return
            except ConnectionFailed as error:
                time.sleep(retry.failed(error))

    def poll(
        self, source: str, after: int, tables: Sequence[str], wait_s: int
    ) -> Iterator[tuple[Mapping[SchemaId, TableSchema], pa.RecordBatch | None, Offset]]:
        """Yield the changes after an offset, and at last None; each with the offset up to which nothing is missing.

        Where there are none it waits for the next, for `wait_s` at most. The caller tries again.

        Raises:
            BehindHorizonError: Retention has removed a change before it was read.
            ClientError: The server cannot be reached, or refused.
        """
        params = {
            "after": after,
            "tables": list(tables),
            "compression": self._options.compression,
            "wait_ms": wait_s * 1000,
        }
        if self._connection is None:
            self._connection = self._connect()
        place, whole = Offset(after), False
        try:
            for schemas, batch, through in self._read(self._connection, _path(source, "changes"), params):
                if batch is None:
                    place = through
                elif batch.num_rows:
                    place = Offset(batch.column(0)[batch.num_rows - 1].as_py())
                yield schemas, batch, place
            whole = True
        finally:
            if not whole:
                self.close()

    def _stream(
        self, path: str, params: Mapping[str, Any]
    ) -> Iterator[tuple[Mapping[SchemaId, TableSchema], pa.RecordBatch]]:
        connection = self._connect()
        try:
            for schemas, batch, _ in self._read(connection, path, params):
                if batch is not None:
                    yield schemas, batch
        finally:
            connection.close()

    def _read(
        self, connection: http.client.HTTPConnection, path: str, params: Mapping[str, Any]
    ) -> Iterator[tuple[Mapping[SchemaId, TableSchema], pa.RecordBatch | None, Offset]]:
        """Yield the batches of one stream, and None at its end; each with the last offset that it covers."""
        with _reached(self.url):
            connection.request("GET", f"{self._prefix}{path}?{urlencode(params, doseq=True)}", None, self._headers)
            answer = connection.getresponse()
            if answer.status != HTTPStatus.OK:
                raise error_of_answer(answer.status, answer.read())
            through = Offset(int(answer.headers.get(_THROUGH, "0")))
            reader = pa.ipc.open_stream(_Body(answer))
            versions = msgspec.json.decode(reader.schema.metadata[_SCHEMAS_KEY], type=list[_Version])
        schemas = {version.id: version.schema for version in versions}
        while True:
            with _reached(self.url):
                try:
                    batch = reader.read_next_batch()
                except StopIteration:
                    if answer.read():  # what follows the end, and whether the body is whole
                        raise BadAnswer("the stream continues after its end") from None
                    break
            yield schemas, batch, through
        yield schemas, None, through

    def _get(self, path: str, params: Mapping[str, Any], kind: type[_R]) -> _R:
        return self._retried(lambda: self._ask("GET", f"{path}?{urlencode(params, doseq=True)}", None, kind))

    def _retried(self, ask: Callable[[], _R]) -> _R:
        return self._retry().call(ask, on=ConnectionFailed, rest=_rest)

    def _retry(self) -> Retry:
        return Retry(self._options.backoff, outage_s_max=self._options.outage_s_max)

    def _ask(self, method: str, path: str, body: bytes | None, kind: type[_R]) -> _R:
        status, answer = self._exchange(method, path, body, again=method == "GET")
        if status not in (HTTPStatus.OK, HTTPStatus.CREATED):
            raise error_of_answer(status, answer)
        try:
            return msgspec.json.decode(answer, type=kind)
        except ValueError as error:
            raise BadAnswer(f"the answer is not as expected: {error}") from error

    def _exchange(self, method: str, path: str, body: bytes | None, *, again: bool) -> tuple[int, bytes]:
        reused = self._connection is not None
        if self._connection is None:
            self._connection = self._connect()
        headers = {**self._headers, "Content-Type": "application/json"} if body is not None else self._headers
        try:
            with _reached(self.url):
                self._connection.request(method, f"{self._prefix}{path}", body, headers)
                answer = self._connection.getresponse()
                return answer.status, answer.read()
        except ConnectionFailed:
            self.close()
            if reused and again:  # the server closes connections that were idle for long
                return self._exchange(method, path, body, again=again)
            raise

    def _reach(self) -> None:
        """Connect again, for a request that must not be sent twice."""
        self.close()
        connection = self._connect()
        with _reached(self.url):
            connection.connect()
        self._connection = connection

    def _connect(self) -> http.client.HTTPConnection:
        timeout = self._options.timeout_s
        if self._secure:
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(self._host, self._port, timeout=timeout, context=context)
        return http.client.HTTPConnection(self._host, self._port, timeout=timeout)


def _params(conditions: Conditions | None) -> dict[str, Any]:
    """Return the params of a request that say what changes have to meet."""
    if conditions is None:
        return {}
    plain = Conditions()
    names = ("key", "key_min", "key_max", "time_us_min", "time_us_max")
    given = {name: value for name in names if (value := getattr(conditions, name)) != getattr(plain, name)}
    ops = [] if conditions.ops >= plain.ops else [op.word for op in sorted(conditions.ops)]
    return {**given, "ops": ops}


def _rest(pause_s: float, _error: Exception) -> bool:
    time.sleep(pause_s)
    return True


class _Body:
    """The body of an answer as pyarrow wants a file."""

    closed = False

    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self._answer = answer

    def read(self, size: int) -> bytes:
        """Return that many bytes; fewer only at the end."""
        data = self._answer.read(size)
        if len(data) == size or not data:
            return data
        parts, left = [data], size - len(data)
        while left and (data := self._answer.read(left)):
            parts.append(data)
            left -= len(data)
        return b"".join(parts)

    def readable(self) -> bool:
        """Tell that it can be read."""
        return True

    def close(self) -> None:
        """Leave it to the connection."""
        self.closed = True


@contextmanager
def _reached(url: str) -> Iterator[None]:
    """Turn the failures of a connection inside a `with` block into `ConnectionFailed`."""
    try:
        yield
    except (http.client.HTTPException, OSError, pa.ArrowInvalid) as error:
        raise ConnectionFailed(unreached(url, error)) from error


def error_of_answer(status: int, body: bytes) -> Exception:
    """Return the error that an answer tells of."""
    try:
        decode_answer(status, body, Any)
    except Refused as refused:
        details = refused.details
        if status == HTTPStatus.GONE and {"requested", "horizon"} <= details.keys():
            return BehindHorizonError(requested=details["requested"], horizon=details["horizon"])
        return ConnectionFailed(str(refused)) if status == HTTPStatus.SERVICE_UNAVAILABLE else refused
    except ClientError as error:
        return error
    return error_of_status(status, body)


def _path(source: str, rest: str = "") -> str:
    return f"/api/v1/bulk/{quote(source, safe='')}" + (f"/{rest}" if rest else "")
