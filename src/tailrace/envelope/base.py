"""The seam to envelopes, how one change is wrapped, and the plain JSON that all of them hold. Pure."""

from typing import Any, Protocol

import msgspec
from msgspec import Struct

from tailrace.model.chunk import Change
from tailrace.model.image import NO_KEY, image_to_plain, key_to_plain
from tailrace.model.op import Op
from tailrace.model.table import TableSchema

__all__ = ["Envelope", "UnfitError", "Wrapped", "plain_image", "plain_key", "plain_key_object", "plain_row", "word_of"]

_READ = "read"


class Wrapped(Struct, frozen=True):
    """A change in an envelope."""

    value: bytes | None
    """None for a tombstone, where the row is gone and the envelope is the row itself."""

    key: bytes
    """JSON, equal for all changes of one row; that of a truncation names no row."""

    headers: tuple[tuple[str, str], ...] = ()
    """What the envelope puts beside the value. Names are in lower case; `ce-` begins attributes of CloudEvents."""

    content_type: str = "application/json"


class UnfitError(ValueError):
    """A change cannot be wrapped in this envelope. The message names the column, never a value."""


class Envelope(Protocol):
    """One way to wrap changes. Pure: equal changes, encoded at the same time, give equal bytes."""

    tombstones: bool
    """Whether a deletion is followed by a tombstone where the target compacts by key."""

    def wrap(self, change: Change, id_: str, *, snapshot: bool = False, now_us: int | None = None) -> Wrapped:
        """Return the envelope of a change of a row, or of a truncation, which is known as `id_`.

        In a snapshot it is a row as it was read.

        `now_us` is the time of encoding, for envelopes that have a place for it; that of the commit by default.

        Raises:
            UnfitError: The envelope has no form for one of its values.
        """


def word_of(change: Change, *, snapshot: bool) -> str:
    """Return what happened in one word: insert, update, delete, truncate, or read for a row of a snapshot."""
    return _READ if snapshot else Op(change.op).word


def plain_key(change: Change) -> bytes:
    """Return the key as an array, in key order."""
    return key_to_plain(change.key, change.schema)


def plain_key_object(change: Change) -> bytes:
    """Return the key as an object of its columns, in key order; of a truncation, which has no key, an empty one."""
    if change.key == NO_KEY:
        return b"{}"
    names = [column.name for column in change.schema.key_columns]
    return msgspec.json.encode(dict(zip(names, msgspec.json.decode(plain_key(change)), strict=True)))


def plain_image(image: bytes | None, schema: TableSchema) -> bytes | None:
    """Return an image, or None where there is none."""
    return None if image is None else image_to_plain(image, schema)


def plain_row(image: bytes | None, schema: TableSchema) -> dict[str, Any] | None:
    """Return an image as an object that can be looked into."""
    return None if image is None else msgspec.json.decode(image_to_plain(image, schema))
