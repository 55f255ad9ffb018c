"""Sinks in the metadata database: which subscription feeds each, and how it goes."""

import secrets
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct
from sqlalchemy import Connection, delete, insert, or_, select, update

from tailrace.meta.database import Store
from tailrace.meta.table import sink as _sink
from tailrace.model.errors import MetadataError, NotFoundError, SinkRefusedError

__all__ = ["LIVES_S", "KeptSink", "SinkFigures", "SinkRun", "SinkState", "SinkStore"]

LIVES_S = 30
"""A sink that has said something since then runs: it does so each second, and between tries to reach its target."""


class SinkState(StrEnum):
    """How a sink is."""

    RUNNING = "running"
    WAITING = "waiting"
    """Its target, its source or a letter is waited for."""

    STOPPED = "stopped"
    FAILED = "failed"


class SinkFigures(Struct, frozen=True):
    """What a sink last said about itself, for people."""

    state: SinkState = SinkState.STOPPED
    offset: int = 0
    """Up to which the target has all changes."""

    messages: int = 0
    """Messages that have arrived since it was started."""

    parked: int = 0
    """Changes that were parked since it was started."""

    time_us: int = 0
    problem: str = ""


class _Said(SinkFigures, frozen=True):
    """Figures with the run of the sink that said so."""

    run: str = ""


class KeptSink(Struct, frozen=True):
    """One sink as the database has it."""

    name: str
    source: str
    url: str
    subscription: str
    """Its name on the wires; empty while the sink has none yet."""

    began_us: int
    """When it started over the last time: tells it from others that had its name before."""

    figures: SinkFigures

    def lives(self, now_us: int) -> bool:
        """Tell whether the sink runs, as far as is known: it has reported something in the last half minute."""
        at_work = self.figures.state in {SinkState.RUNNING, SinkState.WAITING}
        return at_work and now_us - self.figures.time_us < LIVES_S * 1_000_000


class SinkStore(Store):
    """All sinks of a metadata database."""

    def get(self, name: str) -> KeptSink | None:
        """Return a sink; None where it was never run."""
        statement = select(_sink).where(_sink.c.name == name)
        row = self._transact(lambda connection: connection.execute(statement).mappings().first())
        return None if row is None else _sink_of_row(row)

    def all(self) -> Sequence[KeptSink]:
        """Return all sinks in order of their names."""
        statement = select(_sink).order_by(_sink.c.name)
        rows = self._transact(lambda connection: connection.execute(statement).mappings().all())
        return [_sink_of_row(row) for row in rows]

    def meet(self, name: str, *, source: str, url: str, new: bool = True) -> None:
        """Keep where a sink goes to now; one that is not known is kept without a subscription, if it may be `new`."""
        values = {"name": name, "source": source, "url": url, "subscription": "", **self._fresh()}

        def run(connection: Connection) -> None:
            known = connection.execute(select(_sink.c.name).where(_sink.c.name == name)).first()
            if known is not None:
                connection.execute(update(_sink).where(_sink.c.name == name).values(url=url))
            elif new:
                connection.execute(insert(_sink).values(values))

        self._transact(run)

    def put(self, name: str, *, source: str, url: str, subscription: str, began_us: int | None = None) -> int:
        """Keep which subscription feeds a sink, in place of what was kept of it; return when the sink began.

        That is now, unless the subscription goes on where another ended, for which `began_us` was kept.
        """
        values = {"name": name, "source": source, "url": url, "subscription": subscription, **self._fresh()}
        if began_us is not None:
            values["created_time_us"] = began_us
        began_us = int(values["created_time_us"])

        def run(connection: Connection) -> None:
            connection.execute(delete(_sink).where(_sink.c.name == name))
            connection.execute(insert(_sink).values(values))

        self._transact(run)
        return began_us

    def note(self, name: str, figures: SinkFigures, run: str = "", *, takes: bool = True) -> None:
        """Keep how a sink goes, as one run of it says, if any has it. One that `takes` it is the only one from then on.

        Raises:
            SinkRefusedError: Another run has it, and has said something lately.
        """
        said = _Said(**msgspec.structs.asdict(figures), run=run) if run else figures
        text = msgspec.json.encode(said).decode()
        mine = or_(_sink.c.figures.contains(f'"run":"{run}"'), _sink.c.figures.not_like('%"run":%'))

        def note(connection: Connection) -> None:
            if connection.execute(update(_sink).where(_sink.c.name == name, mine).values(figures=text)).rowcount:
                return
            row = connection.execute(select(_sink).where(_sink.c.name == name)).mappings().first()
            if row is not None and not takes and _sink_of_row(row).lives(figures.time_us):
                raise SinkRefusedError(f"another process has taken over the sink {name!r}: this one stops")
            connection.execute(update(_sink).where(_sink.c.name == name).values(figures=text))

        self._transact(note)

    def remove(self, name: str) -> None:
        """Forget a sink.

        Raises:
            NotFoundError: There is none of that name.
        """
        statement = delete(_sink).where(_sink.c.name == name)
        if not self._transact(lambda connection: connection.execute(statement).rowcount):
            raise NotFoundError(f"there is no sink {name[:64]!r}: `tailrace sink ls` lists them")

    def _fresh(self) -> dict[str, Any]:
        return {"created_time_us": self._clock.now_us(), "figures": msgspec.json.encode(SinkFigures()).decode()}


class SinkRun:
    """One run of a sink. As soon as it has connected it takes the sink from any other, which then ends."""

    def __init__(self, store: SinkStore, name: str) -> None:
        self._store = store
        self._name = name
        self._id = secrets.token_hex(8)
        self._has = False

    def note(self, figures: SinkFigures) -> None:
        """Keep how the sink goes; what a run says before it has connected is left out while another one lives.

        Raises:
            SinkRefusedError: Another run has taken the sink since.
        """
        connected = figures.state is SinkState.RUNNING
        run = self._id if connected or self._has else ""
        try:
            self._store.note(self._name, figures, run, takes=connected and not self._has)
        except SinkRefusedError:
            if self._has:
                raise
        self._has = self._has or connected


def _sink_of_row(row: Any) -> KeptSink:
    try:
        figures = msgspec.json.decode(row["figures"], type=SinkFigures)
    except msgspec.MsgspecError as error:
        raise MetadataError(f"sink {row['name']!r} in the metadata database is not readable") from error
    return KeptSink(row["name"], row["source"], row["url"], row["subscription"], row["created_time_us"], figures)
