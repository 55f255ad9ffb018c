"""Values as texts that PostgreSQL reads. Pure; the other way of `type_info`."""

from decimal import Decimal

from tailrace.model.errors import InvalidValueError
from tailrace.model.table import Column, Kind
from tailrace.model.value import Array, Item, Text, Value

__all__ = ["literal_of", "text_of"]


def text_of(value: Value, column: Column) -> str:
    """Return the text of a value; it is read in the type of its column.

    Raises:
        InvalidValueError: No value of PostgreSQL has such a text.
    """
    match value:
        case None:
            raise InvalidValueError("null has no text")
        case bool():
            return "true" if value else "false"
        case int() | float() | Decimal():
            return str(value)  # nan and inf are read as such
        case bytes() if column.kind is Kind.GEOMETRY:
            return value.hex()
        case bytes():
            return rf"\x{value.hex()}"
        case Text(_, text):
            found = text
        case Array(items, lower):
            bounds = "".join(f"[{low}:{low + size - 1}]" for low, size in zip(lower, _sizes(items), strict=False))
            found = f"{bounds}=" * bool(lower) + _array(items, column.element or column)
        case _:
            found = value
    if "\0" in found:
        raise InvalidValueError("a text of PostgreSQL has no character zero")
    return found


def literal_of(value: Value, column: Column) -> str:
    """Return a value as a literal of SQL without a type.

    Raises:
        InvalidValueError: No value of PostgreSQL has such a text.
    """
    text = text_of(value, column).replace("'", "''")
    return f"'{text}'" if "\\" not in text else "E'" + text.replace("\\", "\\\\") + "'"


def _sizes(items: "tuple[Item, ...]") -> list[int]:
    sizes = [len(items)]
    while items and isinstance(items[0], tuple):
        items = items[0]
        sizes.append(len(items))
    return sizes


def _array(items: "tuple[Item, ...]", element: Column) -> str:
    return "{" + ",".join(_item(item, element) for item in items) + "}"


def _item(item: Item, element: Column) -> str:
    if item is None:
        return "NULL"
    if isinstance(item, tuple):
        return _array(item, element)
    text = text_of(item, element).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'
