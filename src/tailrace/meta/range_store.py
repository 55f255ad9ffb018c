"""Ranges of tables and their pullers in the metadata database."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct, structs
from sqlalchemy import ColumnElement, Connection, and_, bindparam, delete, insert, select, update

from tailrace.meta.key_range import Epoch, KeyRange, PullerKey, RangedTable, Registration
from tailrace.meta.ordered_key import table_prefix
from tailrace.meta.store import MetaStore
from tailrace.meta.table import key_range, ranged_table, registration
from tailrace.model.errors import MetadataError
from tailrace.model.number import Offset
from tailrace.model.table import TableName

__all__ = ["KeptRanges", "RangeStore"]

_AFTER = b"\x00"
"""What follows a key in the least bytes that are beyond it."""


class KeptRanges(Struct, frozen=True):
    """All that the database has."""

    tables: Sequence[RangedTable] = ()
    ranges: Sequence[KeyRange] = ()
    registrations: Sequence[Registration] = ()


class RangeStore:
    """The ranges of a metadata database. What a method wrote is durable when it returns. No number is used twice."""

    def __init__(self, store: MetaStore) -> None:
        self._store = store

    async def load(self) -> KeptRanges:
        """Return everything, in order of numbers and names."""

        def run(connection: Connection) -> KeptRanges:
            tables = connection.execute(select(ranged_table).order_by(ranged_table.c.id)).mappings()
            ranges = connection.execute(select(key_range).order_by(key_range.c.id)).mappings()
            ordered = select(registration).order_by(*registration.primary_key)
            pullers = connection.execute(ordered).mappings()
            return KeptRanges(
                [_table_of(row) for row in tables],
                [_range_of(row) for row in ranges],
                [_registration_of(row) for row in pullers],
            )

        return await self._store.transact(run)

    async def make(
        self, table: TableName, key: tuple[str, ...], cuts: Sequence[bytes]
    ) -> tuple[RangedTable, Sequence[KeyRange]]:
        """Give a table a number, and ranges that end with the keys `cuts`, which rise; the last range has the rest.

        The cuts are keys without the number of the table.
        """
        values = {
            "source": table.source,
            "schema_name": table.schema,
            "name": table.name,
            "key_columns": msgspec.json.encode(key).decode(),
        }

        def run(connection: Connection) -> tuple[RangedTable, Sequence[KeyRange]]:
            number = _inserted(connection, insert(ranged_table), values)
            prefix = table_prefix(number)
            bounds = [prefix, *(prefix + cut + _AFTER for cut in cuts), table_prefix(number + 1)]
            ranges = [
                _insert_range(connection, KeyRange(0, number, start, end, born_end=end))
                for start, end in itertools.pairwise(bounds)
            ]
            return RangedTable(number, table, key), ranges

        return await self._store.transact(run)

    async def split(self, parent: KeyRange, last: bytes) -> tuple[KeyRange, KeyRange, Sequence[Registration]]:
        """Split a range behind the key `last`: return what is left of it, the new range, and the pullers of that one.

        Both have the next version. The pullers are those of the parent, as far as they were there.
        """
        border = last + _AFTER
        epoch = Epoch(parent.epoch.conf_ver, parent.epoch.version + 1)

        def run(connection: Connection) -> tuple[KeyRange, KeyRange, Sequence[Registration]]:
            child = KeyRange(0, parent.table_id, border, parent.end, epoch, parent.id, epoch.version, parent.end)
            inserted = _insert_range(connection, child)
            left = structs.replace(parent, end=border, epoch=epoch)
            connection.execute(update(key_range).where(key_range.c.id == parent.id).values(_range_values(left)))
            pullers = connection.execute(select(registration).where(registration.c.range_id == parent.id)).mappings()
            inherited = [structs.replace(_registration_of(row), range_id=inserted.id) for row in pullers]
            for puller in inherited:
                connection.execute(insert(registration).values(structs.asdict(puller)))
            return left, inserted, inherited

        return await self._store.transact(run)

    async def remove(self, table_id: int) -> None:
        """Forget a table, its ranges and their pullers."""

        def run(connection: Connection) -> None:
            mine = select(key_range.c.id).where(key_range.c.table_id == table_id)
            numbers = connection.execute(mine).scalars().all()
            connection.execute(delete(registration).where(registration.c.range_id.in_(numbers)))
            connection.execute(delete(key_range).where(key_range.c.table_id == table_id))
            connection.execute(delete(ranged_table).where(ranged_table.c.id == table_id))

        await self._store.transact(run)

    async def put(self, puller: Registration) -> None:
        """Keep a puller, in place of the one of the same range, owner and name."""

        def run(connection: Connection) -> None:
            connection.execute(delete(registration).where(_is(puller.key)))
            connection.execute(insert(registration).values(structs.asdict(puller)))

        await self._store.transact(run)

    async def move(self, pullers: Sequence[Registration]) -> None:
        """Keep how far pullers have come, and when they were heard. One that is not there stays away."""

        def run(connection: Connection) -> None:
            connection.execute(_MOVE, [_moved_values(puller) for puller in pullers])

        await self._store.transact(run)

    async def unregister(self, key: PullerKey) -> None:
        """Forget a puller."""
        await self._store.transact(lambda connection: connection.execute(delete(registration).where(_is(key))))


def _inserted(connection: Connection, statement: Any, values: Mapping[str, Any]) -> int:
    """Insert a row; return the number that it got."""
    key = connection.execute(statement, values).inserted_primary_key
    assert key is not None
    return int(key[0])


def _insert_range(connection: Connection, range_: KeyRange) -> KeyRange:
    return structs.replace(range_, id=_inserted(connection, insert(key_range), _range_values(range_)))


def _range_values(range_: KeyRange) -> dict[str, Any]:
    return {
        "table_id": range_.table_id,
        "start_key": range_.start,
        "end_key": range_.end,
        "conf_ver": range_.epoch.conf_ver,
        "version": range_.epoch.version,
        "parent": range_.parent,
        "born_version": range_.born_version,
        "born_end": range_.born_end,
    }


def _is(key: PullerKey) -> ColumnElement[bool]:
    range_id, owner, name = key
    mine = registration.c
    return and_(mine.range_id == range_id, mine.owner == owner, mine.name == name)


_MOVE = (
    update(registration)
    .where(
        registration.c.range_id == bindparam("of_range"),
        registration.c.owner == bindparam("of_owner"),
        registration.c.name == bindparam("of_name"),
    )
    .values(log_index=bindparam("index"), heard_time_us=bindparam("heard"))
)
"""One statement for all pullers that have moved."""


def _moved_values(puller: Registration) -> dict[str, Any]:
    return {
        "of_range": puller.range_id,
        "of_owner": puller.owner,
        "of_name": puller.name,
        "index": puller.log_index,
        "heard": puller.heard_time_us,
    }


def _table_of(row: Mapping[Any, Any]) -> RangedTable:
    try:
        key = msgspec.json.decode(row["key_columns"], type=tuple[str, ...])
    except msgspec.DecodeError as error:
        raise MetadataError(f"table {row['name']!r} in the metadata database is not readable") from error
    return RangedTable(row["id"], TableName(row["source"], row["name"], row["schema_name"]), key)


def _range_of(row: Mapping[Any, Any]) -> KeyRange:
    epoch = Epoch(row["conf_ver"], row["version"])
    return KeyRange(
        id=row["id"],
        table_id=row["table_id"],
        start=bytes(row["start_key"]),
        end=bytes(row["end_key"]),
        epoch=epoch,
        parent=row["parent"],
        born_version=row["born_version"],
        born_end=bytes(row["born_end"]),
    )


def _registration_of(row: Mapping[Any, Any]) -> Registration:
    return Registration(
        range_id=row["range_id"],
        owner=row["owner"],
        name=row["name"],
        init_version=Offset(row["init_version"]),
        log_index=Offset(row["log_index"]),
        snapshot_version=Offset(row["snapshot_version"]),
        snapshot_schema=row["snapshot_schema"],
        heard_time_us=row["heard_time_us"],
    )
