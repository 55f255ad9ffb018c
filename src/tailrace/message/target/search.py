"""What search engines have in common: rows as documents, and the requests that carry them."""

import hashlib
from collections.abc import Mapping

import httpx
import msgspec

from tailrace.message.base import Message
from tailrace.message.target.option import seconds_of
from tailrace.message.target.trust import is_untrusted, trusting
from tailrace.model.chunk import Change
from tailrace.model.errors import ConfigError, SinkRefusedError, SinkUnavailableError
from tailrace.model.op import Op
from tailrace.model.table import Kind
from tailrace.sink_url import SinkUrl

__all__ = ["SearchClient", "document_id", "is_gone", "tables_template"]

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


def tables_template(url: SinkUrl) -> str:
    """Return the name of a table's place in a URL.

    Raises:
        ConfigError: There is none.
    """
    template = url.path.removeprefix("/")
    if not url.host or not template or "/" in template:
        raise ConfigError(f"write a search sink as {url.scheme}://HOST:PORT/{{table}}")
    return template


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
