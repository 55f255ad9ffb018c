"""Sinks in the metadata database: which subscription feeds each, and how it goes."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    MetaData,
    String,
    Table,
    Text,
    delete,
    insert,
    select,
    update,
)

from tailrace.meta.database import TEXT_AS_IT_IS, Database
from tailrace.model.errors import MetadataError, NotFoundError

__all__ = ["KeptSink", "SinkFigures", "SinkState", "SinkStore"]

_sink = Table(
    "tailrace_sink",
    MetaData(),
    Column("name", String(64), primary_key=True),
    Column("source", String(255), nullable=False),
    Column("url", Text, nullable=False),
    Column("subscription", String(64), nullable=False),
    Column("created_time_us", BigInteger, nullable=False),
    Column("figures", Text, nullable=False),
    **TEXT_AS_IT_IS,
)
"""One row for each sink that was ever run. `url` is without its password; `subscription` is empty until it has one."""


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


class KeptSink(Struct, frozen=True):
    """One sink as the database has it."""

    name: str
    source: str
    url: str
    subscription: str
    """Its name on the wires; empty while the sink has none yet, as its target was never reached."""

    began_us: int
    """When it began anew the last time: tells it from others that had its name before."""

    figures: SinkFigures


class SinkStore(Database):
    """All sinks of a metadata database."""

    tables = (_sink,)

    def get(self, name: str) -> KeptSink | None:
        """Return a sink; None where it was never run."""
        statement = select(_sink).where(_sink.c.name == name)
        row = self._transact(lambda connection: connection.execute(statement).mappings().first())
        return None if row is None else _kept(row)

    def all(self) -> Sequence[KeptSink]:
        """Return all sinks in order of their names."""
        statement = select(_sink).order_by(_sink.c.name)
        rows = self._transact(lambda connection: connection.execute(statement).mappings().all())
        return [_kept(row) for row in rows]

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

    def note(self, name: str, figures: SinkFigures) -> None:
        """Keep how a sink goes."""
        text = msgspec.json.encode(figures).decode()
        self._transact(
            lambda connection: connection.execute(update(_sink).where(_sink.c.name == name).values(figures=text))
        )

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


def _kept(row: Any) -> KeptSink:
    try:
        figures = msgspec.json.decode(row["figures"], type=SinkFigures)
    except msgspec.MsgspecError as error:
        raise MetadataError(f"sink {row['name']!r} in the metadata database is not readable") from error
    return KeptSink(row["name"], row["source"], row["url"], row["subscription"], row["created_time_us"], figures)
