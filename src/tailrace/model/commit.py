"""What one source transaction did, on its way into the log."""

from msgspec import Struct, field

from tailrace.model.image import NO_KEY
from tailrace.model.number import Index, Offset, Position, SchemaId
from tailrace.model.op import Op

__all__ = ["Appended", "CommitId", "Draft", "Progress"]


class Draft(Struct):
    """All changes of one source transaction in order, by columns, not yet numbered.

    The five lists are of one length. Columns instead of one object per change: a source fills them and the log turns
    each into one array, so a change costs a few list appends. `add` is the readable way to fill them; hot loops may
    append to the lists themselves.

    A change has one key, before it and after it: a row that gets another one is deleted and inserted. A change of a
    whole table (`ROWLESS`) has the key `NO_KEY`; `truncate` adds a truncation.

    `position` is where the source resumes once this commit is in the log. `txid` is the source's own number of the
    transaction; 0 where it has none. `migration` says that it moves data (a snapshot, a bulk load) and is no news.

    A commit that is too large to be held at once comes in parts, one draft each, which follow each other: `part` counts
    them from 0, all but the last have `more`, and the last one's `position` counts. Their other fields are the same.
    """

    position: Position
    commit_time_us: int
    txid: int = 0
    ops: list[int] = field(default_factory=list)
    schemas: list[SchemaId] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)
    befores: list[bytes | None] = field(default_factory=list)
    afters: list[bytes | None] = field(default_factory=list)
    migration: bool = False
    part: int = 0
    more: bool = False

    @property
    def whole(self) -> bool:
        """Return whether it is a whole commit and not a part of one."""
        return not self.part and not self.more

    def add(
        self, op: Op, schema: SchemaId, key: bytes, *, before: bytes | None = None, after: bytes | None = None
    ) -> None:
        """Add one change. Key and images are in their natural JSON form; see `tailrace.model.image`."""
        self.ops.append(op)
        self.schemas.append(schema)
        self.keys.append(key)
        self.befores.append(before)
        self.afters.append(after)

    def truncate(self, schema: SchemaId) -> None:
        """Add that all rows of a table were removed at once. What they were is not known."""
        self.add(Op.TRUNCATE, schema, NO_KEY)

    def __len__(self) -> int:
        return len(self.ops)


class CommitId(Struct, frozen=True):
    """A commit as its source knows it: where it ends, and the source's number of the transaction, 0 where it has none.

    Both, because a source may see commits in another order than its positions: then only the number tells whether a
    reader sees one.
    """

    position: Position
    txid: int = 0


class Progress(Struct, frozen=True):
    """The source has no commit between the last one it yielded and `position`: it resumes there."""

    position: Position


class Appended(Struct, frozen=True):
    """Numbers that the log gave to the drafts of one append: the first commit and change, and the last ones."""

    first_index: Index
    first_offset: Offset
    last_index: Index
    last_offset: Offset
