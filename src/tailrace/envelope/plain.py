"""Keys and images as ordinary JSON, as envelopes hold them. Pure."""

from typing import Any

import msgspec

from tailrace.model.chunk import Change
from tailrace.model.image import NO_KEY, image_to_plain, key_to_plain
from tailrace.model.table import TableSchema

__all__ = ["plain_image", "plain_key", "plain_key_object", "plain_row"]


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
