"""Rows of the change table to commits. Pure.

The decoder is fed rows in order of their number, as they are read, and keeps what it needs between two feedings: the
commit that is being filled, candidates that wait for their row, and the parts of a row that was too wide for one.
"""

from collections import Counter
from collections.abc import Callable, Container, Sequence
from typing import Any

from msgspec import json as msgspec_json

from tailrace.model.commit import Draft
from tailrace.model.number import Position, SchemaId
from tailrace.model.op import Op
from tailrace.source.sqlite.change_table import (
    CELLS_MAX,
    CODE_BITS,
    MIGRATION,
    MIGRATION_END,
    Border,
    ChangeCode,
    format_position,
    quote,
)
from tailrace.source.sqlite.replaced import Candidates
from tailrace.source.sqlite.row_encoder import RowEncoder
from tailrace.source.sqlite.table_version import TableVersion

__all__ = ["Decoder", "repair"]

_FIRST_CELL = 2

_CODE_MASK = (1 << CODE_BITS) - 1
_INSERT_CANDIDATE = int(ChangeCode.INSERT_CANDIDATE)
_UPDATE_CANDIDATE = int(ChangeCode.UPDATE_CANDIDATE)
_CANDIDATES = (_INSERT_CANDIDATE, _UPDATE_CANDIDATE)

_ROWS = {
    ChangeCode.INSERT: 1,
    ChangeCode.UPDATE: 2,
    ChangeCode.DELETE: 1,
    ChangeCode.INSERT_CANDIDATE: 2,
    ChangeCode.UPDATE_CANDIDATE: 2,
}
"""How many table rows the cells of a code hold."""

_NO_POSITION = Position("")

Row = Sequence[Any]


class _Table:
    """What is needed to decode a change of one table version. Plain attributes: this is the hot path."""

    __slots__ = ("cells", "encoder", "first", "schema", "second", "version", "wide")

    def __init__(self, version: TableVersion, schema: SchemaId) -> None:
        self.version = version
        self.schema = schema
        self.encoder = RowEncoder(version)
        self.cells = version.cells
        self.first = slice(0, self.cells)
        self.second = slice(self.cells, 2 * self.cells)
        self.wide = 2 * self.cells > CELLS_MAX


class Decoder:
    """Turns the rows of one change table into drafts."""

    def __init__(
        self,
        capture: str,
        *,
        changes_max: int,
        bytes_max: int,
        cut_through: int = 0,
        changes_first: int | None = None,
        migration: bool = False,
    ) -> None:
        """Begin, perhaps in the middle of a bulk load.

        Borders of transactions are not known up to the row `cut_through`: more than `changes_max` changes are cut into
        commits there, behind it into parts of one commit. With `changes_first`, a first run of rows without a border is
        cut there, and then at twice as many each time.
        """
        self._cut_through = cut_through
        self._capture = capture
        self._changes_max = changes_max
        self.cut_changes = changes_max if changes_first is None else min(changes_first, changes_max)
        """This many changes are cut off now where no border comes."""
        self._bytes_max = bytes_max
        self._tables: dict[int, _Table] = {}
        self._chained: frozenset[SchemaId] = frozenset()
        self._candidates = Candidates()
        self._parts: list[Any] = []
        self._parts_code = 0
        self.bytes_total = 0
        self.closed_at = 0
        """The row at which the last commit ended."""

        self._cut_at = self._cut_bytes()
        self._migration = migration
        self._draft = Draft(_NO_POSITION, 0)
        self._handlers: dict[int, Callable[[_Table, Row], None]] = {
            int(ChangeCode.INSERT): self._insert,
            int(ChangeCode.UPDATE): self._update,
            int(ChangeCode.DELETE): self._delete,
            int(ChangeCode.INSERT_CANDIDATE): self._insert_candidate,
            int(ChangeCode.UPDATE_CANDIDATE): self._update_candidate,
            int(ChangeCode.SCHEMA): self._schema,
        }

    def know(self, version: TableVersion, schema: SchemaId) -> None:
        """Learn a table version before its rows come."""
        self._tables[version.version] = _Table(version, schema)

    def unknown(self, rows: Sequence[Row]) -> set[int]:
        """Return the table versions that rows refer to and that were not learned yet."""
        return {row[1] >> CODE_BITS for row in rows}.difference(self._tables, (0,))

    def chain(self, versions: frozenset[int]) -> None:
        """Say which table versions have triggers of the user's."""
        self._chained = frozenset(table.schema for number, table in self._tables.items() if number in versions)

    def feed(self, rows: Sequence[Row], borders: Sequence[Border]) -> list[Draft]:
        """Take more rows; return the commits that are complete.

        `borders` are the ends of transactions, rising, from the first one that was not fed yet to the first one at or
        after the last row. What follows the last border fed is kept. A commit that exceeds the bound comes in parts, or
        is cut where borders are not known.
        """
        drafts: list[Draft] = []
        tables, handlers = self._tables, self._handlers
        ends = iter(borders)
        end, time_us = next(ends)
        for row in rows:
            number = row[0]
            code = row[1] & _CODE_MASK
            if code:
                table = tables[row[1] >> CODE_BITS]
                if table.wide and code != ChangeCode.SCHEMA:
                    self._take_part(table, code, row)
                else:
                    handlers[code](table, row[_FIRST_CELL:])
            elif row[_FIRST_CELL] is not None:
                self._note(drafts, number, time_us, row[_FIRST_CELL])
            if number == end:
                self.cut_changes = self._changes_max
                self._close(drafts, number, time_us, ends=True)
                end, time_us = next(ends, (end, time_us))
            elif (self.bytes_total >= self._cut_at or len(self._draft.ops) >= self.cut_changes) and self._may_cut(code):
                if number > self._cut_through:
                    self._part_off(drafts, time_us)
                    continue
                self.cut_changes = min(2 * self.cut_changes, self._changes_max)
                self._close(drafts, number, time_us)
        return drafts

    def _cut_bytes(self) -> int:
        return self._bytes_max * self.cut_changes // self._changes_max

    def _note(self, drafts: list[Draft], number: int, time_us: int, note: object) -> None:
        """Begin or end a bulk load; a commit is wholly part of one or not at all."""
        if note == MIGRATION and not self._migration:
            self._close(drafts, number - 1, time_us)
            self._migration = True
        elif note == MIGRATION_END and self._migration:
            self._close(drafts, number, time_us, ends=True)

    def _may_cut(self, code: int) -> bool:
        """Return whether a commit may be cut here: not inside a wide row, not between a candidate and its row."""
        return not self._parts and code not in _CANDIDATES

    def _part_off(self, drafts: list[Draft], time_us: int) -> None:
        """Let a commit continue in another part.

        That gets the last change: perhaps no other comes before the border, and no part is without changes.
        """
        draft = self._draft
        if len(draft.ops) <= 1 or (len(draft.ops) <= self.cut_changes and self.bytes_total < self._cut_at):
            return
        self._candidates.clear()
        draft.more = True
        draft.migration = self._migration
        draft.commit_time_us = time_us
        self._draft = Draft(_NO_POSITION, 0, part=draft.part + 1)
        self._draft.ops.append(draft.ops.pop())
        self._draft.schemas.append(draft.schemas.pop())
        self._draft.keys.append(draft.keys.pop())
        self._draft.befores.append(draft.befores.pop())
        self._draft.afters.append(draft.afters.pop())
        if self._chained and not self._chained.isdisjoint(draft.schemas):
            repair(draft, self._chained)
        drafts.append(draft)
        self._cut_at = self.bytes_total + self._cut_bytes()

    def _take_part(self, table: _Table, code: int, row: Row) -> None:
        """Collect a row that may be in several parts."""
        if code != ChangeCode.MORE:
            self._parts_code = code
        needed = table.cells * _ROWS[ChangeCode(self._parts_code)]
        self._parts += row[_FIRST_CELL : _FIRST_CELL + min(CELLS_MAX, needed - len(self._parts))]
        if len(self._parts) == needed:
            cells, self._parts = self._parts, []
            self._handlers[self._parts_code](table, cells)

    def _insert(self, table: _Table, cells: Row) -> None:
        new = cells[table.first]
        key = table.encoder.key(new)
        after = table.encoder.image(new)
        before = self._remove_replaced(table, ChangeCode.INSERT_CANDIDATE, new, key) if self._candidates else None
        self._add(Op.INSERT if before is None else Op.UPDATE, table.schema, key, before, after)

    def _update(self, table: _Table, cells: Row) -> None:
        old, new = cells[table.first], cells[table.second]
        encoder = table.encoder
        old_key = encoder.key(old)
        new_key = old_key if encoder.same_rowid(old, new) else encoder.key(new)
        before, after = encoder.image(old), encoder.image(new)
        replaced = None
        if self._candidates:
            replaced = self._remove_replaced(table, ChangeCode.UPDATE_CANDIDATE, new, new_key)
            self._candidates.updated(table.version, old_key, old, new_key, new)
        if old_key == new_key:
            self._add(Op.UPDATE, table.schema, new_key, before, after)
        else:
            self._add(Op.DELETE, table.schema, old_key, before, None)
            self._add(Op.INSERT if replaced is None else Op.UPDATE, table.schema, new_key, replaced, after)

    def _delete(self, table: _Table, cells: Row) -> None:
        old = cells[table.first]
        key = table.encoder.key(old)
        if self._candidates:
            self._candidates.deleted(table.version, key)
        self._add(Op.DELETE, table.schema, key, table.encoder.image(old), None)

    def _insert_candidate(self, table: _Table, cells: Row) -> None:
        self._note_candidate(table, ChangeCode.INSERT_CANDIDATE, cells)

    def _update_candidate(self, table: _Table, cells: Row) -> None:
        self._note_candidate(table, ChangeCode.UPDATE_CANDIDATE, cells)

    def _note_candidate(self, table: _Table, code: ChangeCode, cells: Row) -> None:
        old, new = cells[table.first], cells[table.second]
        self._candidates.note(table.version, table.encoder.key(old), code, old, new)

    def _schema(self, table: _Table, cells: Row) -> None:
        version = table.version
        ddl = version.ddl if cells[0] else f"DROP TABLE {quote(version.name)}"
        self._add(Op.SCHEMA, table.schema, b"[]", None, msgspec_json.encode({"ddl": ddl}))

    def _remove_replaced(self, table: _Table, code: ChangeCode, new: Row, key: bytes) -> bytes | None:
        """Add the deletion of each row that was replaced; return the image of the one that had the same key."""
        before = None
        for replaced_key, old in self._candidates.replaced(table.version, code, new):
            image = table.encoder.image(old)
            if replaced_key == key:
                before = image
            else:
                self._add(Op.DELETE, table.schema, replaced_key, image, None)
        return before

    def _add(self, op: Op, schema: SchemaId, key: bytes, before: bytes | None, after: bytes | None) -> None:
        draft = self._draft
        draft.ops.append(op)
        draft.schemas.append(schema)
        draft.keys.append(key)
        draft.befores.append(before)
        draft.afters.append(after)
        self.bytes_total += (len(before) if before else 0) + (len(after) if after else 0)

    def _close(self, drafts: list[Draft], number: int, time_us: int, *, ends: bool = False) -> None:
        """Complete a commit at a row; a bulk load `ends` with its transaction, and goes on where that is only cut."""
        draft = self._draft
        draft.migration = self._migration
        self._migration = self._migration and not ends
        self._candidates.clear()
        if not draft.ops:
            return
        draft.position = format_position(self._capture, number, migration=self._migration)
        self.closed_at = number
        draft.commit_time_us = time_us
        if self._chained and not self._chained.isdisjoint(draft.schemas):
            repair(draft, self._chained)
        drafts.append(draft)
        self._draft = Draft(_NO_POSITION, 0)
        self._cut_at = self.bytes_total + self._cut_bytes()


_Image = bytes | None
"""A row image, None where there is no row."""


def repair(draft: Draft, schemas: Container[SchemaId]) -> None:
    """Put the changes of each row in the order in which they happened, in place, for the given table versions.

    Our triggers note a change when they fire. A trigger of the user's that changes the same row again may have its
    change noted first (when it is newer than ours, until we have seen it), or work on a row that a BEFORE trigger has
    changed meanwhile, so that our note carries an outdated old row. In both cases the notes of one row do not fit
    together: each `before` should be the `after` of the one before it. Such notes are ordered so that they do, as far
    as possible, and the `before` that still does not fit is replaced by what is known. Rows that fit are left alone.
    """
    places: dict[tuple[SchemaId, bytes], list[int]] = {}
    for place, (op, schema, key) in enumerate(zip(draft.ops, draft.schemas, draft.keys, strict=True)):
        if schema in schemas and op != Op.SCHEMA:
            places.setdefault((schema, key), []).append(place)
    for row in places.values():
        steps = [(draft.befores[place], draft.afters[place]) for place in row]
        if any(steps[rank][0] != steps[rank - 1][1] for rank in range(1, len(steps))):
            for place, (before, after) in zip(row, _chained(steps), strict=True):
                draft.ops[place] = _op(before, after)
                draft.befores[place] = before
                draft.afters[place] = after


def _chained(steps: Sequence[tuple[_Image, _Image]]) -> list[tuple[_Image, _Image]]:
    """Return the steps as a path: each begins where the last one ended."""
    state = _start(steps)
    waiting = list(steps)
    path: list[tuple[_Image, _Image]] = []
    while waiting:
        rank = next((rank for rank, (before, _) in enumerate(waiting) if before == state), 0)
        before, after = waiting.pop(rank)
        path.append((before if state is None else state, after))
        state = after
    return path


def _start(steps: Sequence[tuple[_Image, _Image]]) -> _Image:
    """Return the image that a path through all steps begins with: the one left more often than reached."""
    balance = Counter(before for before, _ in steps)
    balance.subtract(after for _, after in steps)
    return next((before for before, _ in steps if balance[before] > 0), steps[0][0])


def _op(before: _Image, after: _Image) -> Op:
    if before is None:
        return Op.INSERT
    return Op.UPDATE if after is not None else Op.DELETE
