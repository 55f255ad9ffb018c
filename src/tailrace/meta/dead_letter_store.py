"""Dead letters in the metadata database: what sinks did not take, until someone has it sent again or drops it."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from sqlalchemy import Connection, delete, func, insert, select, update

from tailrace.meta.database import Store
from tailrace.meta.dead_letter import Letter, LetterDraft, LetterFigures, LetterState
from tailrace.meta.table import dead_letter
from tailrace.model.chunk import Change
from tailrace.model.errors import MetadataError, SinkRefusedError

__all__ = ["DeadLetterStore", "key_hash"]

_T = TypeVar("_T")

_REASON_CHARACTERS_MAX = 2000
_DROPPED_S = 30 * 86_400
"""For how long it is known that a letter was dropped: a sink that was killed may be given its change again."""

_AT_ONCE = 500
"""Values in one statement; databases have a bound."""

_ENCODE = msgspec.msgpack.Encoder().encode
_DECODE = msgspec.msgpack.Decoder(Change).decode


class DeadLetterStore(Store):
    """The dead letters of all sinks of a metadata database."""

    def park(self, sink: str, drafts: Sequence[LetterDraft], letters_max: int) -> int:
        """Keep letters of a sink, all or none; one that is there already stays as it is. Return how many are new.

        One that stands behind letters that are being sent again is sent again with them.

        Raises:
            SinkRefusedError: There would be more than `letters_max`.
        """
        rows = {(row := _row(sink, draft, self._clock.now_us()))["message_hash"]: row for draft in drafts}

        def run(connection: Connection) -> int:
            known = _known(connection, sink, list(rows))
            new = [row for hash_, row in rows.items() if hash_ not in known]
            count = connection.execute(select(func.count()).where(dead_letter.c.sink == sink, _THERE)).scalar_one()
            if new and count + len(new) > letters_max:
                raise SinkRefusedError(
                    f"sink {sink!r} has {count} dead letters and may have {letters_max}: retry or drop some"
                )
            retried = _retried(connection, {row["key_hash"] for row in new if row["state"] == LetterState.BEHIND})
            for row in new:
                if row["key_hash"] in retried:
                    row["state"] = str(LetterState.RETRY)
            for some in _portions(new):
                connection.execute(insert(dead_letter), some)
            return len(new)

        return self._transact(run)

    def keys(self, sink: str) -> dict[str, int]:
        """Return the keys of which a sink has letters, by their hashes, each with its first offset."""
        columns = (dead_letter.c.key_hash, func.min(dead_letter.c.offset))
        statement = select(*columns).where(dead_letter.c.sink == sink, _THERE).group_by(dead_letter.c.key_hash)
        return {row[0]: row[1] for row in self._transact(lambda connection: connection.execute(statement).all())}

    def due(self, sink: str, limit: int, through: int | None = None) -> Sequence[Letter]:
        """Return letters of a sink that are to be sent again, in order, at most this many, and up to an offset."""
        wanted = [dead_letter.c.sink == sink, dead_letter.c.state == str(LetterState.RETRY)]
        if through is not None:
            wanted.append(dead_letter.c.offset <= through)
        return self._select(select(dead_letter).where(*wanted).order_by(*_ORDER).limit(limit))

    def sent(self, letter_ids: Sequence[int]) -> None:
        """Forget letters that have arrived."""
        self._transact(lambda connection: _delete(connection, letter_ids))

    def refused(self, letter: Letter, reason: str, answer: str = "") -> None:
        """Note that a letter was refused once more: all of its key stay parked."""
        key = key_hash(letter.sink, letter.change)

        def run(connection: Connection) -> None:
            others = (dead_letter.c.key_hash == key, dead_letter.c.state == str(LetterState.RETRY))
            connection.execute(update(dead_letter).where(*others).values(state=str(LetterState.BEHIND)))
            values = {
                "state": str(LetterState.REFUSED),
                "reason": _shortened(reason, answer),
                "tries": letter.tries + 1,
            }
            connection.execute(update(dead_letter).where(dead_letter.c.id == letter.id, _THERE).values(values))

        self._transact(run)

    def parked(self, sink: str | None = None, limit: int = 1000, after: int = 0) -> Sequence[Letter]:
        """Return letters of a sink, or of all, with a larger number than `after`, the oldest first."""
        statement = select(dead_letter).where(dead_letter.c.id > after, _THERE).order_by(dead_letter.c.id).limit(limit)
        return self._select(statement if sink is None else statement.where(dead_letter.c.sink == sink))

    def get(self, sink: str, letter_id: int) -> Letter | None:
        """Return one letter of a sink."""
        found = self._select(select(dead_letter).where(dead_letter.c.id == letter_id, _THERE))
        return found[0] if found and found[0].sink == sink else None

    def retry(self, sink: str, letter_ids: Sequence[int] | None = None) -> int:
        """Have letters sent again, with all others of their keys, in order; return how many. None stands for all."""

        def run(connection: Connection) -> int:
            mine = (dead_letter.c.sink == sink, _THERE)
            values = {"state": str(LetterState.RETRY)}
            if letter_ids is None:
                return connection.execute(update(dead_letter).where(*mine).values(values)).rowcount
            count = 0
            for key in _keys(connection, sink, letter_ids):
                ours = update(dead_letter).where(*mine, dead_letter.c.key_hash == key)
                count += connection.execute(ours.values(values)).rowcount
            return count

        return self._transact(run)

    def drop(self, sink: str, letter_ids: Sequence[int] | None = None) -> int:
        """Drop letters unsent; return how many. None stands for all of the sink. Nothing of the rows is kept."""
        now_us = self._clock.now_us()
        gone = {"state": str(LetterState.DROPPED), "parked_time_us": now_us, "reason": "", "key_json": ""}

        def run(connection: Connection) -> int:
            mine = (dead_letter.c.sink == sink, _THERE)
            dropping = update(dead_letter).where(*mine).values(**gone, change_msgpack=b"")
            long_ago = (dead_letter.c.parked_time_us < now_us - _DROPPED_S * 1_000_000, ~_THERE)
            connection.execute(delete(dead_letter).where(*long_ago))
            if letter_ids is None:
                return connection.execute(dropping).rowcount
            portions = [dropping.where(dead_letter.c.id.in_(some)) for some in _portions(letter_ids)]
            return sum(connection.execute(one).rowcount for one in portions)

        return self._transact(run)

    def dropped(self, sink: str) -> set[str]:
        """Return the ids of the messages of a sink that were dropped lately."""
        statement = select(dead_letter.c.message_id).where(dead_letter.c.sink == sink, ~_THERE)
        return set(self._transact(lambda connection: connection.execute(statement).scalars().all()))

    def forget(self, sink: str) -> None:
        """Forget all letters of a sink, also that some were dropped."""
        self._transact(lambda connection: connection.execute(delete(dead_letter).where(dead_letter.c.sink == sink)))

    def figures(self) -> Mapping[str, LetterFigures]:
        """Return how many letters each sink has that has any."""
        columns = (dead_letter.c.sink, func.count(), func.min(dead_letter.c.parked_time_us))
        statement = select(*columns).where(_THERE).group_by(dead_letter.c.sink)
        rows = self._transact(lambda connection: connection.execute(statement).all())
        return {row[0]: LetterFigures(row[1], row[2]) for row in rows}

    def _select(self, statement: Any) -> Sequence[Letter]:
        rows = self._transact(lambda connection: connection.execute(statement).mappings().all())
        return [_letter(row) for row in rows]


_THERE = dead_letter.c.state != str(LetterState.DROPPED)
"""Chooses letters but those that were dropped."""

_ORDER = (dead_letter.c.offset, dead_letter.c.id)
"""In which order letters of one key are sent."""


def key_hash(sink: str, change: Change) -> str:
    """Return what stands for the key of a change among all keys of all sinks."""
    table = change.schema.table
    return _hash(sink, table.source, table.schema, table.name, change.key.decode(errors="surrogateescape"))


def _hash(*parts: str) -> str:
    return hashlib.sha256(msgspec.msgpack.encode([part.encode(errors="surrogateescape") for part in parts])).hexdigest()


def _row(sink: str, draft: LetterDraft, now_us: int) -> dict[str, Any]:
    change = draft.change
    return {
        "sink": sink,
        "message_id": draft.message_id,
        "message_hash": _hash(sink, draft.message_id),
        "source": change.schema.table.source,
        "table_name": change.schema.table.wire,
        "key_json": change.key.decode(errors="replace"),
        "key_hash": key_hash(sink, change),
        "offset": change.offset,
        "commit_index": change.index,
        "op": change.op.word,
        "snapshot": draft.snapshot,
        "state": str(draft.state),
        "reason": _shortened(draft.reason, draft.answer),
        "parked_time_us": now_us,
        "tries": 1 if draft.state is LetterState.REFUSED else 0,
        "change_msgpack": _ENCODE(change),
    }


def _letter(row: Mapping[Any, Any]) -> Letter:
    try:
        change = _DECODE(row["change_msgpack"])
    except msgspec.MsgspecError as error:
        raise MetadataError(f"dead letter {row['id']} in the metadata database is not readable") from error
    members = {
        name: row[name] for name in ("id", "sink", "message_id", "snapshot", "reason", "parked_time_us", "tries")
    }
    return Letter(change=change, state=LetterState(row["state"]), **members)


def _shortened(reason: str, answer: str) -> str:
    reason = f"{reason}: {answer}" if answer else reason
    return reason if len(reason) <= _REASON_CHARACTERS_MAX else f"{reason[:_REASON_CHARACTERS_MAX]}…"


def _known(connection: Connection, sink: str, hashes: Sequence[str]) -> set[str]:
    found: set[str] = set()
    for some in _portions(hashes):
        wanted = (dead_letter.c.sink == sink, dead_letter.c.message_hash.in_(some))
        found.update(connection.execute(select(dead_letter.c.message_hash).where(*wanted)).scalars())
    return found


def _retried(connection: Connection, keys: set[str]) -> set[str]:
    """Return those of some keys, given by their hashes, whose letters are being sent again."""
    found: set[str] = set()
    for some in _portions(list(keys)):
        wanted = (dead_letter.c.key_hash.in_(some), dead_letter.c.state == str(LetterState.RETRY))
        found.update(connection.execute(select(dead_letter.c.key_hash).where(*wanted)).scalars())
    return found


def _keys(connection: Connection, sink: str, letter_ids: Sequence[int]) -> set[str]:
    found: set[str] = set()
    for some in _portions(letter_ids):
        wanted = (dead_letter.c.sink == sink, dead_letter.c.id.in_(some), _THERE)
        found.update(connection.execute(select(dead_letter.c.key_hash).where(*wanted)).scalars())
    return found


def _delete(connection: Connection, letter_ids: Sequence[int]) -> None:
    for some in _portions(letter_ids):
        connection.execute(delete(dead_letter).where(dead_letter.c.id.in_(some)))


def _portions(values: Sequence[_T]) -> Iterator[Sequence[_T]]:
    """Cut values so that each part fits into one statement."""
    return (values[begin : begin + _AT_ONCE] for begin in range(0, len(values), _AT_ONCE))
