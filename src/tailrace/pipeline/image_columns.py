"""Row images as columns, by the compiled helper; see docs/decisions/compiled-helper.md. Pure.

It knows the forms in which images are mostly written. What is written otherwise it leaves, and says so: whoever calls
reads those images again by `tailrace.pipeline.typed`, which knows all forms.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any

import msgspec
import pyarrow as pa
from msgspec import Struct

from tailrace.compiled import find_compiled

__all__ = ["Form", "ImageColumn", "compiled", "image_columns"]


class Form(IntEnum):
    """What the cells of a column become; the numbers are those of the compiled helper."""

    SKIPPED = 0
    INT64 = 1
    FLOAT64 = 2
    BOOL = 3
    TEXT = 4
    """Strings; whole numbers, plain fractions and booleans as they are written."""

    BASE64 = 5
    """The bytes that strings stand for."""

    DIGITS = 6
    """Whole numbers, as they are written."""


compiled = find_compiled("tailrace.pipeline._images", " ".join(form.name.lower() for form in Form))
"""The compiled helper; None where it was not built or is switched off."""

_TYPES = {
    Form.INT64: pa.int64(),
    Form.FLOAT64: pa.float64(),
    Form.BOOL: pa.bool_(),
    Form.TEXT: pa.string(),
    Form.BASE64: pa.binary(),
    Form.DIGITS: pa.string(),
}


class ImageColumn(Struct, frozen=True):
    """Cells of a column, and which of them mean nothing, because they are written otherwise; None where none is."""

    values: pa.Array
    left: pa.Array | None


def image_columns(
    images: pa.Array, names: Sequence[str], forms: Mapping[str, Form]
) -> tuple[dict[str, ImageColumn], bool] | None:
    """Return columns of images, and whether no image lacks one of all `names`; None without the helper.

    `names` are those of all columns of the images' table, in its order. `images` are binary, and none is null.
    """
    if compiled is None or not len(images) or not names:
        return None
    _, offsets, data = images.buffers()
    wishes = [(msgspec.json.encode(name) + b":", int(forms.get(name, Form.SKIPPED))) for name in names]
    made, whole = compiled.decode(len(images), offsets, _EMPTY if data is None else data, images.offset, wishes)
    return {
        name: _column(column, _TYPES[forms[name]], len(images))
        for name, column in zip(names, made, strict=True)
        if column is not None
    }, whole


def _column(made: Any, type_: pa.DataType, count: int) -> ImageColumn:
    values, texts, validity, nulls, left = made
    buffers = [values] if texts is None else [values, texts]
    cells = pa.Array.from_buffers(type_, count, [_shown(validity), *map(pa.py_buffer, buffers)], nulls)
    mask = None if left is None else pa.Array.from_buffers(pa.bool_(), count, [None, pa.py_buffer(left)], 0)
    return ImageColumn(cells, mask)


def _shown(bits: bytes | None) -> pa.Buffer | None:
    return None if bits is None else pa.py_buffer(bits)


_EMPTY = pa.py_buffer(b"")
