"""The error tree. Raise the narrowest; each docstring says what the caller should do.

TailraceError
├── ConfigError                   the configuration is wrong: fix the named key
│   ├── UnknownSchemeError        no kind of source has such URLs: use one of the known schemes
│   └── SourceOptionError         an option of a source is unknown or wrong: fix it where it was given
├── InvalidRequestError           the caller asked for something impossible: fix the request
│   ├── InvalidValueError         a value or typed literal is malformed
│   ├── InvalidPredicateError     a predicate cannot be read, or cannot be right: fix it at the place shown
│   ├── CaptureDisabledError      capture is switched off: switch it on, or ask for no changes
│   ├── BeyondHeadError           an offset that the log has not reached yet
│   └── ResultTooLargeError       a query gives more than is allowed: ask for less
├── QueryTimeoutError             a query took too long: ask for less, or try again later
├── NotFoundError                 no such thing
│   ├── UnknownSourceError
│   ├── UnknownTableError
│   ├── UnknownSubscriptionError
│   ├── UnknownConsumerError
│   ├── UnknownQueryError
│   └── UnknownPipelineError
├── AccessError                   the caller may not do this, or not now
│   ├── UnauthenticatedError      nobody knows who calls: send valid credentials
│   ├── PermissionDeniedError     the caller is known and may not do this: ask for the right
│   ├── RateLimitError            too many calls at once: try again after a moment
│   ├── QuotaError                the caller has as many of these as it may have: close some
│   ├── HostRefusedError          the server was called by a name that is not its own: configure allowed_hosts
│   └── OriginRefusedError        a web page of another site calls: configure allowed_origins
├── PredicateError                a predicate failed on a change: its subscription ends, no other
├── BehindHorizonError            the change was removed by retention: take a new snapshot
├── CommitsLostError              commits of a change stream were removed by retention: take a new snapshot
├── ConsumerExistsError           a consumer of that id lives: resume it, or cancel it first
├── ConsumerEndedError            the consumer was ended, or is another incarnation now: register it again
├── ConsumersFullError            there are as many consumers as there may be: cancel some
├── PipelineExistsError           a pipeline of that name is there: choose another name, or remove it
├── LogError
│   ├── CorruptSegmentError       a damaged segment: restore it or start a new log
│   ├── FormatVersionError        a newer version wrote the log: use that version
│   ├── AppendTooLargeError       more at once than one frame can hold: append less at once
│   ├── LogFullError              the disk is full: free space; appending goes on by itself
│   ├── LogWriteError             the disk refused a write: see the cause
│   └── LogClosedError            the log was closed while someone waited for it
├── MetadataError                 the metadata database refused: see the cause
├── DataDirectoryInUseError       another process owns the data directory
├── ListenError                   the address is taken or not of this machine: choose another
├── SourceError
│   ├── SourceAbilityError        this kind of source cannot do it: ask for something else
│   ├── KeyValueError             the source takes no keys and values: do what the message says
│   ├── SourceUnavailableError    the database cannot be reached now: retried by itself
│   └── SourceStateError          the database does not let us capture: do what the message says
└── SinkError
    ├── SinkUnavailableError      the sink cannot be reached now: the same batch is given again
    └── SinkRefusedError          the sink will not take this: do what the message says
"""

from collections.abc import Collection

__all__ = [
    "AccessError",
    "AppendTooLargeError",
    "BehindHorizonError",
    "BeyondHeadError",
    "CaptureDisabledError",
    "CommitsLostError",
    "ConfigError",
    "ConsumerEndedError",
    "ConsumerExistsError",
    "ConsumersFullError",
    "CorruptSegmentError",
    "DataDirectoryInUseError",
    "FormatVersionError",
    "HostRefusedError",
    "InvalidPredicateError",
    "InvalidRequestError",
    "InvalidValueError",
    "KeyValueError",
    "ListenError",
    "LogClosedError",
    "LogError",
    "LogFullError",
    "LogWriteError",
    "MetadataError",
    "NotFoundError",
    "OriginRefusedError",
    "PermissionDeniedError",
    "PipelineExistsError",
    "PredicateError",
    "QueryTimeoutError",
    "QuotaError",
    "RateLimitError",
    "ResultTooLargeError",
    "SinkError",
    "SinkRefusedError",
    "SinkUnavailableError",
    "SourceAbilityError",
    "SourceError",
    "SourceOptionError",
    "SourceStateError",
    "SourceUnavailableError",
    "TailraceError",
    "UnauthenticatedError",
    "UnknownConsumerError",
    "UnknownPipelineError",
    "UnknownQueryError",
    "UnknownSchemeError",
    "UnknownSourceError",
    "UnknownSubscriptionError",
    "UnknownTableError",
]

_SIDE = 60
"""How many characters an excerpt shows on either side of its place."""


def excerpt(text: str, place: int) -> str:
    """Return the part of the line around a place, and a mark under it."""
    begin = max(text.rfind("\n", 0, place) + 1, place - _SIDE)
    end = text.find("\n", place)
    end = min(len(text) if end < 0 else end, place + _SIDE)
    return f"  {text[begin:end]}\n  {' ' * (place - begin)}^"


_NAME_SHOWN_MAX = 100
"""Most characters of a name that came from outside which a message shows."""


class TailraceError(Exception):
    """Root of all errors that Tailrace raises on purpose. Any other exception out of it is a bug."""


class ConfigError(TailraceError):
    """The configuration is wrong. The message names the key, flag or variable and what it takes."""


class UnknownSchemeError(ConfigError):
    """No kind of source has URLs of this scheme. `known` are the schemes that there are."""

    def __init__(self, scheme: str, known: Collection[str], reason: str = "") -> None:
        shown = reason or f"there is no source for {scheme[:_NAME_SHOWN_MAX]!r} URLs"
        super().__init__(f"{shown}; known are {', '.join(f'{one}://' for one in sorted(known))}")
        self.scheme = scheme
        self.known = tuple(sorted(known))


class SourceOptionError(ConfigError):
    """An option of a source is unknown, has a wrong value, or is given twice. `origin` is where it was given."""

    def __init__(self, option: str, reason: str, origin: str) -> None:
        super().__init__(f"{origin}: option {option[:_NAME_SHOWN_MAX]!r}{reason}")
        self.option = option
        self.reason = reason
        self.origin = origin


class InvalidRequestError(TailraceError):
    """The caller asked for something impossible. Fix the request; trying again unchanged fails again."""


class InvalidValueError(InvalidRequestError):
    """A value or typed literal is malformed."""


class InvalidPredicateError(InvalidRequestError):
    """A predicate cannot be read, names what is not there, or can never make sense. Fix it at `place`.

    `place` counts characters from 0. The message ends with the line of the predicate and a mark under the place, unless
    the text is empty or too long to show.
    """

    def __init__(self, reason: str, *, text: str, place: int) -> None:
        self.reason = reason
        self.place = min(max(place, 0), len(text))
        super().__init__(f"{reason}\n{excerpt(text, self.place)}" if text else reason)


class CaptureDisabledError(InvalidRequestError):
    """Changes are not captured by this server. Switch capture on (`capture.enabled`), or ask another server."""

    def __init__(self) -> None:
        super().__init__("CDC not enabled: capture is switched off (capture.enabled)")


class BeyondHeadError(InvalidRequestError):
    """An offset lies beyond the newest change: it belongs to another log. Check which server it came from."""

    def __init__(self, *, requested: int, head: int) -> None:
        super().__init__(f"offset {requested} is beyond the newest change {head}")
        self.requested = requested
        self.head = head


class ResultTooLargeError(InvalidRequestError):
    """A query gives more rows or bytes than one answer may have. Ask for less: LIMIT, fewer columns, a condition."""


class QueryTimeoutError(TailraceError):
    """A query took longer than it may. Ask for less, or try again when the server is less busy."""


class NotFoundError(TailraceError):
    """The named thing does not exist."""


class UnknownSourceError(NotFoundError):
    """There is no source of that name. Name one that the server has; the SochDB interface calls it a namespace.

    `known` are the sources that the caller may see.
    """

    def __init__(self, name: str, word: str = "source", known: Collection[str] = ()) -> None:
        shown = f"{word} {name[:64]!r} not found" if name else f"there are several sources: name one as {word}"
        super().__init__(f"{shown}; there is {', '.join(sorted(known))}" if known else shown)
        self.name = name


class UnknownTableError(NotFoundError):
    """The source has no such table, or does not capture it."""

    def __init__(self, source: str, table: str) -> None:
        super().__init__(f"table {source}.{table} not found")
        self.source = source
        self.table = table


class UnknownSubscriptionError(NotFoundError):
    """The subscription was never made, or was closed."""

    def __init__(self, name: str) -> None:
        super().__init__(f"subscription {name} not found")
        self.name = name


class UnknownConsumerError(NotFoundError):
    """No consumer of a change stream has that id and incarnation."""

    def __init__(self, consumer_id: str) -> None:
        super().__init__(f"consumer {consumer_id} not found")
        self.consumer_id = consumer_id


class UnknownQueryError(NotFoundError):
    """The query was never prepared on this server. Prepare it; the same text gives the same id."""

    def __init__(self, query_id: str) -> None:
        super().__init__(f"query {query_id} not found")
        self.query_id = query_id


class UnknownPipelineError(NotFoundError):
    """There is no pipeline of that name in the metadata database. Name one that is, or another database."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no pipeline {name[:64]!r}")
        self.name = name


class AccessError(TailraceError):
    """The caller may not do this, or not now. Says nothing about what there is to be seen."""


class UnauthenticatedError(AccessError):
    """Nobody knows who calls, or not any more. Send valid credentials; `expired` tells that they once were."""

    def __init__(self, *, expired: bool = False) -> None:
        super().__init__(_EXPIRED if expired else _UNAUTHENTICATED)
        self.expired = expired


class PermissionDeniedError(AccessError):
    """The caller is known and may not do this. Ask whoever gives out credentials for the right to."""


class RateLimitError(AccessError):
    """Too many calls of one caller. Nothing was done; try again after `retry_after_ms`."""

    def __init__(self, *, retry_after_ms: int) -> None:
        super().__init__(f"Rate limit exceeded. Retry after {retry_after_ms}ms.")
        self.retry_after_ms = retry_after_ms


class QuotaError(AccessError):
    """The caller has as many of something as it may have at one time. Close some, or ask for more."""


class HostRefusedError(AccessError):
    """The server was called by a name that it does not answer to. Add the name to `allowed_hosts`, or use another."""

    def __init__(self, host: str) -> None:
        super().__init__(
            f"host {host[:_NAME_SHOWN_MAX]!r} is not served: call the server by its address or a loopback name, "
            "or add the name to its setting allowed_hosts (--allowed-hosts)"
        )


class OriginRefusedError(AccessError):
    """A web page of another site calls. Add its origin to `allowed_origins` where it may."""

    def __init__(self, origin: str | None) -> None:
        page = "this page" if origin is None else f"pages of origin {origin[:_NAME_SHOWN_MAX]!r}"
        super().__init__(
            f"{page} may not call this server: add the origin to its setting allowed_origins (--allowed-origins)"
        )


class PredicateError(TailraceError):
    """A predicate failed on a change. The subscription that brought it ends; fix the predicate and subscribe again."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the predicate failed: {reason}")
        self.reason = reason


class BehindHorizonError(TailraceError):
    """The wanted change was removed by retention. Take a new snapshot and begin again at `horizon` - 1 or later."""

    def __init__(self, *, requested: int, horizon: int, remedy: str = "") -> None:
        lost = f"change {requested} is no longer in the log; the oldest is {horizon}"
        super().__init__(f"{lost}: {remedy}" if remedy else lost)
        self.requested = requested
        self.horizon = horizon


class CommitsLostError(TailraceError):
    """The wanted commits were removed by retention. Take a new snapshot and begin with commit `first` or later."""

    def __init__(self, *, requested: int, first: int) -> None:
        super().__init__(f"commit {requested} is no longer in the log; the oldest is {first}")
        self.requested = requested
        self.first = first


class ConsumerExistsError(TailraceError):
    """A consumer of that id lives. Resume it by its incarnation, or cancel it first."""

    def __init__(self, consumer_id: str) -> None:
        super().__init__(f"consumer {consumer_id} is registered and lives")
        self.consumer_id = consumer_id


class ConsumerEndedError(TailraceError):
    """The consumer was ended, or lives in a later incarnation. Register it again; `reason` tells why it ended."""

    def __init__(self, consumer_id: str, *, incarnation: int, reason: str, checkpoint: int) -> None:
        super().__init__(f"consumer {consumer_id}, incarnation {incarnation}, has ended: {reason}")
        self.consumer_id = consumer_id
        self.incarnation = incarnation
        self.reason = reason
        self.checkpoint = checkpoint


class ConsumersFullError(TailraceError):
    """There are as many consumers of change streams as there may be. Cancel some."""


class PipelineExistsError(TailraceError):
    """A pipeline of that name is there already. Choose another name, or remove it first."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is a pipeline {name!r}: choose another name, or remove it first")
        self.name = name


class LogError(TailraceError):
    """Something is wrong with the log on disk."""


class CorruptSegmentError(LogError):
    """A segment is damaged before its end. Nothing after the named place is read; restore the file from a copy."""

    def __init__(self, segment: str, *, place: int, reason: str) -> None:
        super().__init__(f"segment {segment} is damaged at byte {place}: {reason}")
        self.segment = segment
        self.place = place
        self.reason = reason


class FormatVersionError(LogError):
    """A newer version of Tailrace wrote this file. Use that version, or a later one."""

    def __init__(self, name: str, *, version: int, known: int) -> None:
        super().__init__(f"{name} is of format version {version}; this program knows versions up to {known}")
        self.name = name
        self.version = version
        self.known = known


class AppendTooLargeError(LogError):
    """More at once than one frame can hold. Nothing of it was kept; append fewer commits, or a smaller one."""

    def __init__(self, *, size_bytes: int, size_bytes_max: int) -> None:
        super().__init__(f"an append of {size_bytes} bytes exceeds the limit of {size_bytes_max}")
        self.size_bytes = size_bytes
        self.size_bytes_max = size_bytes_max


class LogFullError(LogError):
    """The disk is full. Nothing of the append was kept; free some space and append again."""


class LogWriteError(LogError):
    """The disk refused a write or a sync. Nothing of the append counts; the cause tells why."""


class LogClosedError(LogError):
    """The log was closed while someone waited for it. Open it again."""


class MetadataError(TailraceError):
    """The metadata database cannot be opened or refused a statement. Nothing of the call counts; see the cause."""


class DataDirectoryInUseError(TailraceError):
    """Another process owns the data directory. Stop that process or name another directory."""

    def __init__(self, directory: str, owner: str) -> None:
        super().__init__(f"data directory {directory} is in use by {owner}")
        self.directory = directory
        self.owner = owner


class ListenError(TailraceError):
    """An address cannot be listened on: it is taken, or not of this machine. Choose another host or port."""

    def __init__(self, address: str, reason: str, remedy: str = "") -> None:
        said = f"cannot listen on {address}: {reason}"
        super().__init__(f"{said}; {remedy}" if remedy else said)
        self.address = address
        self.reason = reason


class SourceError(TailraceError):
    """Something is wrong with a source."""


class SourceAbilityError(SourceError):
    """Sources of this kind cannot do what was asked for. Ask for something else, or ask another source."""

    def __init__(self, source: str, reason: str) -> None:
        super().__init__(f"source {source!r} {reason}")
        self.source = source
        self.reason = reason


class KeyValueError(SourceError):
    """The source cannot keep keys and values: it is of another kind, or has a table `kv` of its own."""


class SourceUnavailableError(SourceError):
    """The database cannot be reached or is locked. Capture tries again by itself."""


class SourceStateError(SourceError):
    """The database is in a state that does not let us capture. The message says what to do."""


class SinkError(TailraceError):
    """Something is wrong with a sink."""


class SinkUnavailableError(SinkError):
    """The sink cannot be reached now, or is busy. It may have taken the batch all the same: give it again."""


class SinkRefusedError(SinkError):
    """The sink will not take this, and trying again changes nothing by itself. Do what the message says.

    `table` and `key` name the row that was refused, where it was one row; the values of a row are never shown.
    """

    def __init__(self, reason: str, *, table: str = "", key: str = "") -> None:
        row = f"the row with key {key} of table {table}: " if key else f"table {table}: " if table else ""
        super().__init__(f"{row}{reason}")
        self.reason = reason
        self.table = table
        self.key = key


_UNAUTHENTICATED = "Authentication required. Provide a Bearer token or API key."
_EXPIRED = "Authentication token has expired."
