"""Picking: which changes of a batch a reader may want, before anything of the others is copied. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from tailrace.log.find import Finder, joined
from tailrace.model.chunk import ENVELOPE, PickedChunk
from tailrace.model.number import Offset, SchemaId
from tailrace.model.op import Op
from tailrace.model.table import TableSchema
from tailrace.model.wanted import KeyWanted, KeyWithin, OneOfKeys, Wanted

__all__ = ["Batches", "Frames", "Looked", "Pick", "Picking", "integer_keys"]

Batches = list[tuple[pa.RecordBatch, int]]
"""The batches of a block, each with its size in the file."""

Frames = list[tuple[int, int]]
"""Where in a block the payload of each frame begins, and its size."""

_SHARE_MAX = 0.25
"""A block of which more than this may be wanted is better read whole: others may use it, too."""

_ENOUGH_CHANGES = 1024
_ENOUGH_BYTES = 512 * 1024
_READ_BYTES_MAX = 32 * 1024 * 1024
"""After this many bytes of blocks, what was found is handed out, so that a reader who finds little gets on."""

_CHANGES_MAX = 4096
_BYTES_MAX = 2 * 1024 * 1024

_ALL_OPS = frozenset(map(int, Op))

_EQUAL_MAX = 4
"""Up to this many values, comparing with each costs less than looking all up in a set."""


class Looked(Struct, frozen=True):
    """A block that was read and checked: its first and last change, its newest schema version, and what it holds.

    That is all of it, in batches; or only how many changes may be wanted and those, packed, where they are few.
    """

    first: Offset
    last: Offset
    newest: int
    batches: Batches
    size_bytes: int
    wanted: int = 0
    packed: bytes | None = None

    @classmethod
    def at(cls, batches: Batches) -> "Looked":
        """Return all of a block."""
        end = batches[-1][0]
        first, last = batches[0][0].column(0)[0].as_py(), end.column(0)[end.num_rows - 1].as_py()
        newest = max(pc.max(batch.column("schema")).as_py() for batch, _ in batches)
        return cls(first, last, newest, batches, sum(size for _, size in batches))


class Picking:
    """Collects the changes of consecutive blocks that may be wanted, until there are enough."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._finder = Finder.of(wanted)
        self._pick: Pick | None = None
        self._first = Offset(0)
        self._found: list[pa.RecordBatch] = []
        self._packed: list[bytes] = []
        self._changes = self._bytes = self._read_bytes = 0
        self.blocks = 0

    def is_full(self) -> bool:
        """Tell whether enough was found, or read."""
        enough = self._changes >= _ENOUGH_CHANGES or self._bytes >= _ENOUGH_BYTES
        return enough or self._read_bytes >= _READ_BYTES_MAX

    @property
    def can_find(self) -> bool:
        """Tell whether blocks need not be decoded before it is known what is wanted of them."""
        return self._finder is not None

    def find(self, data: memoryview, frames: Frames, changes: int) -> Looked | None:
        """Return what is wanted of a block with this many changes, given its payloads; None where it must be decoded.

        So it must where it is wanted for the most part.
        """
        assert self._finder is not None
        limit = _CHANGES_MAX - self._changes if self.blocks else int(_SHARE_MAX * changes)
        found = self._finder.find(data, frames, limit)
        if found is None or (found[4] is None and not self.blocks):
            return None
        wanted, newest, first, last, packed = found
        return Looked(Offset(first), Offset(last), newest, [], len(data), wanted, packed)

    def add(self, looked: Looked) -> bool:
        """Take the wanted changes of the next block, copied; False, and nothing is taken, where those are many."""
        if not looked.batches:
            return looked.packed is not None and self._add_packed(looked, looked.packed)
        self._pick = self._pick or Pick(self._wanted)
        picked = [(batch, self._pick.rows(batch)) for batch, _ in looked.batches]
        changes = sum(len(rows) for _, rows in picked)
        all_changes = sum(batch.num_rows for batch, _ in looked.batches)
        # About: measuring what was taken costs as much as taking it.
        size_bytes = looked.size_bytes * changes // all_changes
        if not self.blocks:
            if changes > _SHARE_MAX * all_changes:
                return False
            self._first = looked.first
        elif self._changes + changes > _CHANGES_MAX or self._bytes + size_bytes > _BYTES_MAX:
            return False
        self._join_packed()
        self._found += [batch.take(rows) for batch, rows in picked if len(rows)]
        self._count(changes, size_bytes, looked.size_bytes)
        return True

    def made(self, schemas: Mapping[SchemaId, TableSchema], behind: Offset) -> PickedChunk:
        """Return what was found from the first block up to an offset, which is the next to look at."""
        self._join_packed()
        found = self._found
        batch = found[0] if len(found) == 1 else pa.concat_batches(found) if found else _NOTHING
        return PickedChunk(batch, schemas, self._first, Offset(behind - 1), self._wanted)

    def _add_packed(self, looked: Looked, packed: bytes) -> bool:
        if not self.blocks:
            self._first = looked.first
        elif self._bytes + len(packed) > _BYTES_MAX:
            return False
        if packed:
            self._packed.append(packed)
        self._count(looked.wanted, len(packed), looked.size_bytes)
        return True

    def _count(self, changes: int, size_bytes: int, read_bytes: int) -> None:
        self.blocks += 1
        self._changes += changes
        self._bytes += size_bytes
        self._read_bytes += read_bytes

    def _join_packed(self) -> None:
        """Make a batch of the changes that were packed, before others follow."""
        if self._packed:
            self._found.append(joined(self._packed))
            self._packed = []


_NOTHING = pa.RecordBatch.from_arrays([pa.array([], field.type) for field in ENVELOPE], schema=ENVELOPE)


class Pick:
    """Finds the changes of batches that may be wanted. Columns are compared whole, and images are not looked at."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._ops = None if wanted.ops >= _ALL_OPS else _OneOf(sorted(wanted.ops), pa.int8())
        by_key: dict[KeyWanted, list[int]] = {}
        for number, key in wanted.schemas.items():
            by_key.setdefault(key, []).append(number)
        self._groups = [_Group(key, numbers) for key, numbers in by_key.items()]

    def rows(self, batch: pa.RecordBatch) -> Any:
        """Return which rows of a batch may be wanted, as an Arrow array of rising numbers."""
        newest = pc.max(batch.column("schema")).as_py()
        parts = [group.rows(batch, newest) for group in self._groups]
        if newest > self._wanted.known:  # nothing is said of later ones, so they are wanted
            later = pc.greater(batch.column("schema"), pa.scalar(self._wanted.known, pa.int32()))
            parts.append(pc.indices_nonzero(later))
        rows = parts[0] if len(parts) == 1 else _merged(parts)
        if self._ops is None or not len(rows):
            return rows
        ops, schemas = self._ops.mask(batch.column("op").take(rows)), batch.column("schema").take(rows)
        if newest > self._wanted.known:
            ops = pc.or_(ops, pc.greater(schemas, pa.scalar(self._wanted.known, pa.int32())))
        return rows.filter(ops)


class _Group:
    """Schema versions of which the same keys are wanted."""

    def __init__(self, key: KeyWanted, numbers: Sequence[int]) -> None:
        self._key = key
        self._through = max(numbers) if len(numbers) == max(numbers) else 0  # all up to this one, or not all up to any
        self._keys = _OneOf(sorted(key.keys), pa.binary()) if isinstance(key, OneOfKeys) else None
        self._schemas = _OneOf(numbers, pa.int32())

    def rows(self, batch: pa.RecordBatch, newest: int) -> Any:
        schemas = batch.column("schema")
        if self._keys is not None:
            # Few have the key. So it is looked for first, and only where it is found, of what table it is.
            rows = pc.indices_nonzero(self._keys.mask(batch.column("key")))
            if not len(rows) or newest <= self._through:
                return rows
            return rows.filter(self._schemas.mask(schemas.take(rows)))
        rows = pc.indices_nonzero(self._schemas.mask(schemas))
        if isinstance(self._key, KeyWithin) and len(rows):
            found = integer_keys(batch.column("key").take(rows))
            if found is not None:
                lower, upper = pa.scalar(self._key.lower, pa.int64()), pa.scalar(self._key.upper, pa.int64())
                return rows.filter(pc.and_(pc.greater_equal(found, lower), pc.less_equal(found, upper)))
        return rows


class _OneOf:
    """Finds where a column has one of some values."""

    def __init__(self, values: Sequence[Any], type_: pa.DataType) -> None:
        few = 0 < len(values) <= _EQUAL_MAX
        self._scalars = [pa.scalar(value, type_) for value in values] if few else []
        self._set = pa.array(values, type_)

    def mask(self, column: Any) -> Any:
        if not self._scalars:
            return pc.is_in(column, value_set=self._set)
        mask = pc.equal(column, self._scalars[0])
        for scalar in self._scalars[1:]:
            mask = pc.or_(mask, pc.equal(column, scalar))
        return mask


def integer_keys(keys: Any) -> Any:
    """Return keys of one integer each as numbers; None where one is something else."""
    try:
        return pc.binary_slice(keys, 1, -1).cast(pa.utf8()).cast(pa.int64())
    except pa.ArrowInvalid:
        return None


def _merged(parts: Sequence[Any]) -> Any:
    """Return rows of several lists, which have none in common, in one that rises."""
    joined = pa.concat_arrays(parts) if parts else pa.array([], pa.uint64())
    return joined.take(pc.sort_indices(joined))
