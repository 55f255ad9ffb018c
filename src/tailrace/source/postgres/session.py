"""One opening of a PostgreSQL source: its connections, its slot, and the stream of changes. Runs in one thread."""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError

import psycopg

from tailrace.clock import Clock
from tailrace.model.commit import Draft, Progress
from tailrace.model.errors import SourceStateError, SourceUnavailableError
from tailrace.model.number import Position, SchemaId
from tailrace.model.table import TableSchema
from tailrace.source.postgres.catalog import Catalog
from tailrace.source.postgres.ddl_message import Ddl
from tailrace.source.postgres.ddl_trigger import ensure_triggers
from tailrace.source.postgres.frame import Frames, payload_at
from tailrace.source.postgres.options import PostgresSettings, slot_name
from tailrace.source.postgres.pgoutput import Relation
from tailrace.source.postgres.position import (
    NEW_LOG,
    Slot,
    System,
    format_lsn,
    format_position,
    parse_position,
    require_resumable,
    require_usable,
)
from tailrace.source.postgres.replication_connection import ReplicationConnection
from tailrace.source.postgres.replication_message import DATA_BEGIN, decode_keepalive, status_update
from tailrace.source.postgres.setup import drop_stale_publications, ensure_publication, require_capturable
from tailrace.source.postgres.table_book import TableBook
from tailrace.source.postgres.table_shape import schema_of
from tailrace.source.postgres.transactions import Learnt, SchemaChange, Transactions
from tailrace.source.reader import Reader

__all__ = ["Session"]

logger = logging.getLogger(__name__)

_Take = Callable[[Sequence[Draft] | Progress], None]
_Put = Callable[[Sequence[TableSchema]], list[tuple[SchemaId, TableSchema]]]

_PROGRESS_REST_S = 0.25
"""How long nothing must have been handed over before progress without changes is."""

_STATUS_REST_S = 1.0
"""Confirmed positions are sent at most so often."""

_WAIT_S = 5.0
_SLOT_FREE_S = 15.0
"""How long a slot may be in use by our own connection of before, which the server ends in its own time."""

_FINISH_S = 2.0
_DATA = ord("w")


class Session:
    """Follows one slot. `confirm`, `send_status_if_due`, `stop` and `cancel` may be called by any thread."""

    def __init__(
        self, url: str, reader: Reader, settings: PostgresSettings, clock: Clock, book: TableBook, put: _Put
    ) -> None:
        self._url = url
        self._reader = reader
        self._settings = settings
        self._clock = clock
        self._book = book
        self._put = put
        self._slot_name = slot_name(settings, reader)
        self._publication = settings.publication
        self._own_publication = False
        self._catalog: Catalog | None = None
        self._connection: ReplicationConnection | None = None
        self._system = System(0, 0, 0)
        self._slot: Slot | None = None
        self._created = False
        self._stopping = threading.Event()
        self._streaming = False
        self._received_lsn = 0
        self._confirmed_lsn = 0
        self._sent_lsn = 0
        self._sent_s = 0.0
        self._status_interval_s = settings.seconds("status_interval")
        self._silence_s = settings.seconds("silence_timeout")

    @property
    def slot(self) -> str:
        """Return the name of the slot."""
        return self._slot_name

    @property
    def status_tick_s(self) -> float:
        """Return how often to look whether a status update is due."""
        return min(_STATUS_REST_S, self._status_interval_s)

    def open(self, source: str) -> list[TableSchema]:
        """Connect, make publication and slot where they are missing, and return the tables as they are now."""
        self._catalog = catalog = Catalog(self._url, self._settings)
        require_capturable(catalog)
        self._ensure_publication(catalog)
        self._connect()
        self._ensure_slot(catalog)
        relations = catalog.relations(catalog.published(self._publication))
        schemas = [schema_of(source, one, catalog.facts(one, {})) for one in relations]
        self._book.know({one.oid: schema.table for one, schema in zip(relations, schemas, strict=True)})
        return schemas

    def _ensure_publication(self, catalog: Catalog) -> None:
        if self._reader.ephemeral and catalog.publication(self._publication) is None:
            drop_stale_publications(catalog)
            self._publication = self._slot_name
            catalog.hold(self._publication)
            self._own_publication = True
        elif catalog.publication(self._publication) is None:
            self._require_no_slot(catalog)
        # Before the slot: pgoutput looks for the publication as it was at each change.
        if ensure_publication(catalog, self._publication, self._settings):
            logger.info("publication created", extra={"publication": self._publication})
        if not self._reader.ephemeral and self._settings.ddl_trigger:
            ensure_triggers(catalog)

    def _require_no_slot(self, catalog: Catalog) -> None:
        """Refuse to make a publication for a slot that is there already.

        Changes from before a publication are refused by older servers, and left out by newer ones: a silent hole.
        """
        slot = catalog.slot(self._slot_name)
        if slot is None:
            return
        require_usable(slot, catalog.database)
        raise SourceStateError(
            f"publication {self._publication} is gone, and replication slot {slot.name} is there: changes may be "
            f"missing. Drop the slot with SELECT pg_drop_replication_slot('{slot.name}'); then {NEW_LOG}"
        )

    def _connect(self) -> None:
        self._connection = ReplicationConnection(
            self._url, self._settings.conninfo(self._url), self._settings.seconds("connect_timeout")
        )
        self._system = self._connection.identify()

    def _ensure_slot(self, catalog: Catalog) -> None:
        found = catalog.slot(self._slot_name)
        if found is None:
            assert self._connection is not None
            self._connection.query(
                catalog.slot_creation(
                    self._slot_name, temporary=self._reader.ephemeral, failover=self._settings.failover
                )
            )
            self._created = True
            logger.info("replication slot created", extra={"slot": self._slot_name})
            found = catalog.slot(self._slot_name)
            assert found is not None
        require_usable(found, catalog.database)
        self._slot = found

    # Streaming

    def prepare(self) -> None:
        """Make ready for a stream, before the thread gets to it."""
        self._stopping.clear()

    def stream(self, after: Position | None, take: _Take) -> None:
        """Call `take` with what is committed after a position, until `stop`.

        Raises:
            SourceStateError: The position is lost or the server changed so that capture cannot go on.
            SourceUnavailableError: The connection broke.
        """
        start_lsn = self._start(after)
        self._book.begin()
        try:
            _Stream(self, start_lsn, take).run(after)
        except CancelledError:  # nobody takes any more
            if not self._stopping.is_set():
                raise
        except SourceUnavailableError:
            self._streaming = False
            self._disconnect()  # nobody is there to take leave of
            raise
        finally:
            self._leave()

    def _start(self, after: Position | None) -> int:
        """Begin to stream; return the place after which changes come."""
        catalog = self._catalog
        assert catalog is not None
        if self._connection is None:  # a stream was ended before
            self._connect()
        slot = catalog.slot(self._slot_name)
        if slot is None and self._reader.ephemeral:
            raise SourceStateError("the temporary replication slot is gone with its connection: start again from now")
        if slot is None:
            raise SourceStateError(f"replication slot {self._slot_name} was dropped; {NEW_LOG}")
        require_usable(slot, catalog.database)
        start_lsn = slot.confirmed_lsn
        if after is not None:
            place = parse_position(after)
            try:
                require_resumable(place, self._system, slot)
            except SourceStateError:
                self._forget_new_slot(catalog)
                raise
            start_lsn = place.lsn
            self._book.confirmed(start_lsn)  # who begins there has all that lies before
        self._received_lsn = self._confirmed_lsn = self._sent_lsn = start_lsn
        self._start_replication(start_lsn)
        self._streaming = True
        return start_lsn

    def _forget_new_slot(self, catalog: Catalog) -> None:
        """Remove a slot that we made for nothing: it would keep write-ahead log for nobody."""
        if self._created and not self._reader.ephemeral:
            catalog.drop_slot(self._slot_name)

    def _start_replication(self, start_lsn: int) -> None:
        version = self._catalog.version if self._catalog is not None else 0
        protocol = 4 if version >= 160000 else 3 if version >= 150000 else 2
        name = self._publication.replace('"', '""').replace("'", "''")
        options = [f"proto_version '{protocol}'", f"publication_names '\"{name}\"'", "messages 'true'"]
        if self._settings.streaming:
            options.append("streaming 'on'")
        command = f"START_REPLICATION SLOT {self._slot_name} LOGICAL {format_lsn(start_lsn)} ({', '.join(options)})"
        end_s = time.monotonic() + _SLOT_FREE_S
        while True:
            assert self._connection is not None
            try:
                self._connection.start(command)
                return
            except SourceUnavailableError as error:
                in_use = isinstance(error.__cause__, psycopg.errors.ObjectInUse)
                if not in_use or time.monotonic() > end_s or self._stopping.wait(0.05):
                    raise

    def stop(self) -> None:
        """End the stream: `stream` returns as soon as it can."""
        self._stopping.set()
        connection = self._connection
        if connection is not None:
            connection.wake()

    @property
    def stopping(self) -> bool:
        """Tell whether the stream is to end."""
        return self._stopping.is_set()

    def _leave(self) -> None:
        """End the stream, having said how far we are. A connection with a slot of its own stays for `close`."""
        self._streaming = False
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            connection.finish(self._status(reply=False), _FINISH_S)
        except (SourceUnavailableError, SourceStateError):
            pass  # the server sends again what it did not hear of
        finally:
            connection.close()

    # What the stream and the event loop say to the server

    def confirm(self, position: Position) -> None:
        """Note that the log has everything up to a position."""
        self._confirmed_lsn = max(self._confirmed_lsn, parse_position(position).lsn)
        self._book.confirmed(self._confirmed_lsn)

    def send_status_if_due(self) -> None:
        """Send a status update where the log has more than the server knows of, or the server waits to hear from us."""
        if not self._streaming:
            return
        since_s = self._clock.monotonic_s() - self._sent_s
        overdue = since_s >= self._status_interval_s
        if overdue or (self._confirmed_lsn > self._sent_lsn and since_s >= _STATUS_REST_S):
            self.send_status(reply=overdue)  # its answer shows that the connection is alive

    def send_status(self, *, reply: bool) -> None:
        """Send a status update.

        Raises:
            SourceUnavailableError: The connection is broken.
        """
        connection = self._connection
        if connection is not None:
            self._sent_lsn, self._sent_s = self._confirmed_lsn, self._clock.monotonic_s()
            connection.send(self._status(reply=reply))

    def _status(self, *, reply: bool) -> bytes:
        return status_update(
            received_lsn=self._received_lsn, confirmed_lsn=self._confirmed_lsn, now_us=self._clock.now_us(), reply=reply
        )

    def received(self, lsn: int) -> None:
        """Note how far the stream is."""
        self._received_lsn = max(self._received_lsn, lsn)

    # What the stream needs

    def read(self, wait_s: float) -> Frames:
        """Return frames of the stream that have come; they are good until the next call."""
        assert self._connection is not None
        return self._connection.read(wait_s)

    def position_at(self, lsn: int) -> Position:
        """Return a place in the log of this server as a position."""
        return format_position(self._system.system, self._system.timeline, lsn)

    def learn(self, relation: Relation, type_names: Mapping[int, str]) -> Learnt:
        """Return the shape of a table that the stream has described."""
        assert self._catalog is not None
        return self._book.learn(self._catalog, relation, type_names, self._put)

    def hear(self, ddl: Ddl) -> list[SchemaChange]:
        """Return what the log must hear of a statement that changed the schema."""
        assert self._catalog is not None
        return self._book.hear(self._catalog, self._publication, ddl, self._put)

    def handed_over(self, lsn: int) -> None:
        """Note that `take` was given all commits up to here."""
        self._book.handed_over(lsn)

    @property
    def limits(self) -> tuple[float, str | None]:
        """Return how long the server may be silent, and where large transactions are kept."""
        return self._silence_s, self._settings.spool_directory or None

    def cancel(self) -> None:
        """Have the server end what `open` waits for."""
        connection = self._connection
        if connection is not None:
            connection.cancel()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def close(self) -> None:
        """Disconnect, and remove what belongs to this process."""
        self._disconnect()
        catalog, self._catalog = self._catalog, None
        if catalog is None:
            return
        try:
            if self._reader.ephemeral:
                self._await_slot_end(catalog)
            if self._own_publication:
                catalog.drop_publication(self._publication)
        except (SourceStateError, SourceUnavailableError):
            logger.warning("publication left behind", extra={"publication": self._publication})
        finally:
            catalog.close()

    def _await_slot_end(self, catalog: Catalog) -> None:
        """Wait until the server has removed the temporary slot: it does so when it notices that we have left."""
        end_s = time.monotonic() + _FINISH_S
        while catalog.slot(self._slot_name) is not None and time.monotonic() < end_s:
            time.sleep(0.01)


class _Stream:
    """Reads frames and hands over commits and progress, until the session is stopped."""

    def __init__(self, session: Session, start_lsn: int, take: _Take) -> None:
        self._session = session
        self._take = take
        self._silence_s, spool = session.limits
        self._transactions = Transactions(
            session.learn, session.position_at, spool_directory=spool, on_parts=self._hand_over, hear=session.hear
        )
        self._handed_lsn = start_lsn
        self._progress_lsn = start_lsn
        self._handed_s = time.monotonic()
        self._heard_s = self._handed_s

    def run(self, after: Position | None) -> None:
        """Read until stopped."""
        if after is None:  # from now on the log can tell when the slot was made again
            self._take(Progress(self._session.position_at(self._handed_lsn)))
        try:
            while not self._session.stopping:
                self._step()
        finally:
            self._transactions.close()

    def _step(self) -> None:
        frames = self._session.read(self._wait_s())
        now_s = time.monotonic()
        if frames:
            self._heard_s = now_s
        elif now_s - self._heard_s > self._silence_s:
            raise SourceUnavailableError(f"the server was silent for {self._silence_s:g} s: the connection is broken")
        self._feed(frames)
        if self._transactions.drafts:
            self._hand_over()
        elif self._progress_lsn > self._handed_lsn and now_s - self._handed_s >= _PROGRESS_REST_S:
            self._handed_lsn, self._handed_s = self._progress_lsn, now_s
            self._take(Progress(self._session.position_at(self._progress_lsn)))

    def _wait_s(self) -> float:
        """Return how long to wait for payloads: not beyond the moment when progress is due."""
        if self._progress_lsn <= self._handed_lsn:
            return _WAIT_S
        return max(0.0, self._handed_s + _PROGRESS_REST_S - time.monotonic())

    def _feed(self, frames: Frames) -> None:
        transactions = self._transactions
        feed_rows, feed = transactions.feed_rows, transactions.feed
        at, end = 0, len(frames)
        while at < end:
            at = feed_rows(frames, at)
            if at == end:
                break
            payload, at = payload_at(frames, at)
            if payload[0] == _DATA:
                feed(payload[DATA_BEGIN:])
                continue
            keepalive = decode_keepalive(payload)
            if keepalive.reply:
                self._session.send_status(reply=False)
            # All that was committed before has been sent, unless it is being sent now.
            if not transactions.in_transaction:
                self._progress_lsn = max(self._progress_lsn, keepalive.end_lsn)
        self._progress_lsn = max(self._progress_lsn, transactions.progress_lsn)
        self._session.received(self._progress_lsn)

    def _hand_over(self) -> None:
        """Give what is ready to whoever takes it."""
        drafts = self._transactions.drafts
        group: list[Draft] = drafts[:]
        drafts.clear()
        if not group[-1].more:
            self._handed_lsn = parse_position(group[-1].position).lsn
            self._session.handed_over(self._handed_lsn)
        self._take(group)
        self._handed_s = time.monotonic()
