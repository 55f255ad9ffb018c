"""Web hooks: each message, or several together, as a signed POST request in the form of Standard Webhooks."""

import base64
import binascii
import contextlib
import email.utils
import hashlib
import hmac
import ipaddress
import socket
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import httpx
from msgspec import Struct

from tailrace.clock import Clock, SystemClock
from tailrace.message.base import BusyError, Intake, Message, Refusal, TargetTraits, answer_text
from tailrace.message.target.header import PRINTABLE, TOMBSTONE_HEADER, ascii_json, ascii_text
from tailrace.message.target.option import number_of, seconds_of, switch_of
from tailrace.message.target.trust import is_untrusted, trusting
from tailrace.model.errors import ConfigError, SinkRefusedError, SinkUnavailableError
from tailrace.model.table import TableName, TableSchema
from tailrace.sink_url import SinkUrl, Spelling

__all__ = [
    "RETRY_AFTER_S_MAX",
    "Resolve",
    "WebhookOptions",
    "WebhookTarget",
    "build",
    "judged",
    "resolved",
    "system_addresses",
]

_PREFIX = "whsec_"


def secrets_of(text: str) -> list[bytes]:
    """Return the secrets of an option: one, or while they are being exchanged several, with spaces between.

    Raises:
        ConfigError: One is not in base64. It is not shown.
    """
    try:
        found = [base64.b64decode(one.removeprefix(_PREFIX) + "==", validate=False) for one in text.split()]
    except binascii.Error:
        found = [b""]
    if not found or not all(found):
        raise ConfigError("the secret of a web hook is whsec_ and then base64")
    return found


def signed(secrets: Sequence[bytes], id_: str, time_s: int, body: bytes) -> dict[str, str]:
    """Return the headers of a request: its id, its time, and a signature by each secret."""
    content = b"%s.%d.%s" % (id_.encode(), time_s, body)
    signatures = [base64.b64encode(hmac.digest(secret, content, hashlib.sha256)).decode() for secret in secrets]
    headers = {"webhook-id": id_, "webhook-timestamp": str(time_s)}
    if signatures:
        headers["webhook-signature"] = " ".join(f"v1,{one}" for one in signatures)
    return headers


RETRY_AFTER_S_MAX = 600.0
"""Longest time for which a receiver that asks for it (`Retry-After`) is left alone."""

_BUSY = frozenset({408, 421, 425, 429})
"""Answers that mean: not now. So does everything from 500 on."""

_STOPPING = {
    401: "it does not accept the credentials",
    403: "it does not accept the credentials",
    404: "there is nothing at this address",
    405: "it takes no POST requests",
    410: "it wants no more messages",
}
"""Answers that are about all messages."""


def judged(status: int, retry_after: str, now_s: float) -> str:
    """Return why a receiver does not take a request, or nothing where it does.

    Raises:
        BusyError: It is busy, for as long as the header `Retry-After` says, if it is there.
        SinkRefusedError: It takes nothing more at all.
    """
    if status < 300:
        return ""
    if status in _STOPPING:
        raise SinkRefusedError(f"the web hook answers {status}: {_STOPPING[status]}")
    if status < 400:
        raise SinkRefusedError(f"the web hook answers {status}: it has moved: configure its new URL")
    if status in _BUSY or status >= 500:
        raise BusyError(f"the web hook answers {status}", _asked_s(retry_after, now_s))
    return f"the web hook answers {status}"


def _asked_s(text: str, now_s: float) -> float:
    """Return how long a receiver asks to be left alone, which it says in seconds or as a date; within bounds."""
    try:
        asked_s = float(text) if text.isdecimal() else email.utils.parsedate_to_datetime(text).timestamp() - now_s
    except (ValueError, OverflowError):
        return 0.0
    return min(max(asked_s, 0.0), RETRY_AFTER_S_MAX)


_OPTIONS = ("secret", "bearer", "batch", "concurrency", "timeout", "ca", "allow_private")
_BATCH_MAX = 10_000
_CONCURRENCY_MAX = 64
_TIMEOUT_S = 15.0

_ROUNDS = 128
"""How many requests of each lane are made until all of them are through and count as sent, about."""

_ANSWER_BYTES_MAX = 64 << 10
_ANSWER_SHOWN_BYTES = 2000
"""How much of an answer is read; only its status counts."""

_BEHIND = "it follows a message of the same row that was refused"


class WebhookOptions(Struct, frozen=True, kw_only=True):
    """Where to, and how. What is secret is not shown."""

    scheme: str
    host: str
    port: int
    path: str
    user: str = ""
    password: str = ""
    bearer: str = ""
    secrets: tuple[bytes, ...] = ()
    batch: int = 1
    """Most messages in one request; above 1 the body is a JSON array."""

    concurrency: int = 8
    """Most requests at the same time. Messages of one key are never in two of them."""

    timeout_s: float = _TIMEOUT_S
    ca: str = ""
    """File with the certificates to trust, in place of the system's."""

    allow_private: bool = False

    def __repr__(self) -> str:
        return f"the web hook at {self.host}:{self.port}"


_TRANSLATED = ipaddress.IPv6Network("64:ff9b::/96")
"""Addresses that stand for those of IPv4, which are their last bits."""


_GLOBAL = ipaddress.IPv6Network("2000::/3")
"""Where public addresses of IPv6 are; all others are of no network but one's own, or stand for those of IPv4."""


Resolve = Callable[[str, int], list[str]]
"""Returns the addresses of a host. Raises OSError where there are none."""


def system_addresses(host: str, port: int) -> list[str]:
    """Return the addresses that the system knows for a host."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class WebhookTarget:
    """A receiver of web hooks.

    Order: a message is sent after the one before it of the same key has been accepted; messages of different keys
    overtake each other. Duplicates: a request whose answer is lost is sent again with the same `webhook-id`. A batch
    may be cut otherwise after a crash: then its messages are recognised by their own offsets. Durability: any answer
    from 200 to 299 means that the receiver has it. Keeps no mark.
    """

    def __init__(self, options: WebhookOptions, clock: Clock, resolve: Resolve = system_addresses) -> None:
        self.options = options
        changes_max = _ROUNDS * options.batch * options.concurrency
        self.traits = TargetTraits(Intake.KEYED, changes_max=changes_max)
        self._resolve = resolve
        self._path = Spelling(quote(options.path, safe="/{}"), lambda text: quote(text, safe=""))
        self._clock = clock
        self._client: httpx.Client | None = None
        self._addresses: list[str] = []
        self._turn = 0
        """Which of the addresses is used: the next one when one cannot be connected to."""

        self._arrived: set[str] = set()
        """Ids of messages of a batch that has failed in part: they are not sent again with it."""

    def open(self, schemas: Sequence[TableSchema]) -> None:
        """Look the receiver up. Whether it is there shows the first message."""
        if self._client is None:
            options = self.options
            self._addresses = resolved(
                options.host, options.port, allow_private=options.allow_private, resolve=self._resolve
            )
            limits = httpx.Limits(max_connections=options.concurrency)
            verify = trusting(options.ca) if options.ca else True
            self._client = httpx.Client(timeout=options.timeout_s, limits=limits, verify=verify, trust_env=False)

    def mark(self) -> bytes | None:
        """A receiver keeps none."""
        return None

    def send(self, messages: Sequence[Message], mark: bytes) -> Sequence[Refusal]:
        """Send messages; those of one key one after the other."""
        self.open(())
        lanes: dict[tuple[str, int], list[int]] = {}
        for place, message in enumerate(messages):
            if message.id not in self._arrived:
                lane = zlib.crc32(message.change.key) % self.options.concurrency
                lanes.setdefault((self._path(message.change.schema.table), lane), []).append(place)
        sending = _Sending(messages)
        if len(lanes) == 1:
            self._send_lane(sending, *lanes.values())
        elif lanes:
            with ThreadPoolExecutor(
                min(len(lanes), self.options.concurrency), thread_name_prefix="tailrace-webhook"
            ) as threads:
                list(threads.map(lambda places: self._send_lane(sending, places), lanes.values()))
        if sending.problem is not None:
            self._arrived |= sending.arrived
            self.close()
            if isinstance(sending.problem, BusyError):
                sending.problem.arrived = len(sending.arrived)
            raise sending.problem
        self._arrived.difference_update(message.id for message in messages)
        return sorted(sending.refusals, key=lambda refusal: refusal.place)

    def close(self) -> None:
        """Disconnect."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _send_lane(self, sending: "_Sending", places: Sequence[int]) -> None:
        """Send messages in order, until this lane or another one meets a problem."""
        size = self.options.batch
        try:
            for begin in range(0, len(places), size):
                some = sending.open_places(places[begin : begin + size])
                if sending.problem is not None:
                    return
                reason, answer = self._post(sending.chosen(some)) if some else ("", "")
                if not reason or len(some) == 1:
                    sending.done(some, reason, answer)
                    continue
                for place in some:  # one of them is at fault: each is judged by itself, still in order
                    for one in sending.open_places([place]):
                        sending.done([one], *self._post(sending.chosen([one])))
        except (SinkUnavailableError, SinkRefusedError) as problem:
            sending.problem = problem

    def _post(self, messages: Sequence[Message]) -> tuple[str, str]:
        """Send one request; return why the receiver does not take it and its own words, or nothing where it does.

        Raises:
            SinkUnavailableError: It cannot be reached, or is busy.
            SinkRefusedError: It takes nothing more at all.
        """
        options = self.options
        batched = options.batch > 1
        body = _array(messages) if batched else _body(messages[0])
        id_ = _id(messages[0].id) if len(messages) == 1 else f"{_id(messages[0].id)}~{_id(messages[-1].id)}"
        headers = {"content-type": _content_type(messages[0], batched=batched), "accept-encoding": "identity"}
        if not batched:
            headers |= {"tailrace-key": ascii_json(messages[0].key), **TOMBSTONE_HEADER[messages[0].value is None]}
            headers |= {name: ascii_text(text) for name, text in messages[0].headers}
        headers |= signed(options.secrets, id_, self._clock.now_us() // 1_000_000, body)
        headers["host"] = _address(options.host) + ("" if options.port in {80, 443} else f":{options.port}")
        if options.bearer:
            headers["authorization"] = f"Bearer {options.bearer}"
        assert self._client is not None
        turn = self._turn
        address = _address(self._addresses[turn % len(self._addresses)])
        url = f"{options.scheme}://{address}:{options.port}{self._path(messages[0].change.schema.table)}"
        auth = httpx.BasicAuth(options.user, options.password) if options.user else httpx.USE_CLIENT_DEFAULT
        extensions = {"sni_hostname": options.host}
        try:
            with self._client.stream(
                "POST", url, content=body, headers=headers, auth=auth, extensions=extensions
            ) as response:
                answer = _drained(response, time.monotonic() + options.timeout_s)
        except httpx.TransportError as error:
            if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
                self._turn = turn + 1
            why = "its certificate is not trusted, see the option `ca`" if is_untrusted(error) else type(error).__name__
            raise BusyError(f"{options!r} cannot be reached: {why}") from None
        reason = judged(response.status_code, response.headers.get("retry-after", ""), self._clock.now_us() / 1e6)
        return reason, answer if reason else ""


class _Sending:
    """What becomes of one batch, filled from several threads."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self.messages = messages
        self.refusals: list[Refusal] = []
        self.arrived: set[str] = set()
        self.problem: SinkUnavailableError | SinkRefusedError | None = None
        self._refused: set[tuple[TableName, bytes]] = set()
        self._lock = threading.Lock()

    def chosen(self, places: Sequence[int]) -> list[Message]:
        """Return the messages at places."""
        return [self.messages[place] for place in places]

    def open_places(self, places: Sequence[int]) -> list[int]:
        """Return those places that may be sent; the others follow a refused message of their key and are refused."""
        behind = [place for place in places if _row(self.messages[place]) in self._refused]
        with self._lock:
            self.refusals += [Refusal(place, _BEHIND) for place in behind]
        return [place for place in places if place not in behind]

    def done(self, places: Sequence[int], reason: str, answer: str) -> None:
        """Note that messages have arrived, or with a reason that the receiver does not take them."""
        with self._lock:
            if reason:
                self.refusals += [Refusal(place, reason, answer) for place in places]
                self._refused.update(_row(self.messages[place]) for place in places)
            else:
                self.arrived.update(self.messages[place].id for place in places)


def _address(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _drained(response: httpx.Response, deadline_s: float) -> str:
    """Read the rest of an answer, so that its connection can be used again, unless it is much or takes long.

    Return the beginning of its text; nothing where it is compressed, which nobody has asked for.
    """
    size, begin = 0, b""
    with contextlib.suppress(httpx.TransportError):  # its status is known
        for piece in response.iter_raw():
            size += len(piece)
            begin += piece[: max(0, _ANSWER_SHOWN_BYTES - len(begin))]
            if size > _ANSWER_BYTES_MAX or time.monotonic() > deadline_s:
                break
    return "" if "content-encoding" in response.headers else answer_text(begin)


def _row(message: Message) -> tuple[TableName, bytes]:
    return message.change.schema.table, message.change.key


def _id(text: str) -> str:
    """Return an id for a header. It has no full stop: that divides what is signed."""
    return quote(text, safe=PRINTABLE).replace(".", "%2E")


def _body(message: Message) -> bytes:
    """Return the value, or, where only the row is sent and it is gone, its key."""
    return b'{"deleted":%s}' % message.key if message.value is None else message.value


def _array(messages: Sequence[Message]) -> bytes:
    if any(name.startswith("ce-") for name, _ in messages[0].headers):
        raise SinkRefusedError("binary CloudEvents cannot be sent together: use the envelope cloudevents, or batch=1")
    return b"[%s]" % b",".join(_body(message) for message in messages)


def _content_type(message: Message, *, batched: bool) -> str:
    if batched and message.content_type.startswith("application/cloudevents+json"):
        return "application/cloudevents-batch+json; charset=utf-8"
    return message.content_type


def build(url: SinkUrl, name: str) -> WebhookTarget:
    """Return the target of a `webhook+https` or `webhook+http` URL.

    Raises:
        ConfigError: Something in it is wrong.
    """
    values = url.only(*_OPTIONS)
    scheme = url.scheme.removeprefix("webhook+")
    if not url.host:
        raise ConfigError(f"write a web hook as {url.scheme}://HOST/PATH?secret=whsec_…")
    bearer = values.get("bearer", "")
    if not (bearer.isascii() and bearer.isprintable() and bearer == bearer.strip()):
        raise ConfigError("the option bearer of a web hook is printable ASCII, without spaces or lines around it")
    options = WebhookOptions(
        scheme=scheme,
        host=url.host,
        port=url.port or (443 if scheme == "https" else 80),
        path=url.path or "/",
        user=url.user,
        password=url.password,
        bearer=bearer,
        secrets=tuple(secrets_of(values["secret"])) if "secret" in values else (),
        batch=number_of(values, "batch", 1, least=1, most=_BATCH_MAX),
        concurrency=number_of(values, "concurrency", 8, least=1, most=_CONCURRENCY_MAX),
        timeout_s=seconds_of(values, "timeout", _TIMEOUT_S),
        ca=values.get("ca", ""),
        allow_private=switch_of(values, "allow_private"),
    )
    return WebhookTarget(options, SystemClock())


def resolved(host: str, port: int, *, allow_private: bool, resolve: Resolve = system_addresses) -> list[str]:
    """Return the addresses to connect to, one of which is then connected to whatever the name says a moment later.

    Raises:
        SinkUnavailableError: The name cannot be resolved now.
        SinkRefusedError: One of its addresses is not public, and only those are allowed.
    """
    try:
        addresses = resolve(host, port)
    except OSError:
        raise SinkUnavailableError(f"the host {host!r} cannot be resolved") from None
    if not allow_private and not all(_is_public(address) for address in addresses):
        raise SinkRefusedError(
            f"the host {host!r} is in a private network: web hooks go there only with the option allow_private=true"
        )
    return addresses


def _is_public(address: str) -> bool:
    parsed = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(parsed, ipaddress.IPv6Address):
        translated = ipaddress.IPv4Address(int(parsed) & 0xFFFFFFFF) if parsed in _TRANSLATED else None
        inner = parsed.ipv4_mapped or parsed.sixtofour or translated
        if inner is not None:
            return inner.is_global and not inner.is_multicast
        if parsed not in _GLOBAL:
            return False
    return parsed.is_global and not parsed.is_multicast
