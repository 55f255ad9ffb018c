"""Fields of protobuf messages, written by hand where a message is sent a million times. Pure."""

__all__ = ["bytes_field", "number_field", "varint"]

_NUMBER, _BYTES = 0, 2
_STEP_BITS = 14
_STEP = 1 << _STEP_BITS


class _Low(dict[int, bytes]):
    """The lowest 14 bits of numbers that have more: those that were met, at most `_STEP`."""

    def __missing__(self, number: int) -> bytes:
        made = self[number] = bytes((number & 127 | 128, number >> 7 | 128))
        return made


class _Short(dict[int, bytes]):
    """Numbers that have no more than 14 bits: those that were met, at most `_STEP`."""

    def __missing__(self, number: int) -> bytes:
        made = self[number] = bytes((number,)) if number < 128 else bytes((number & 127 | 128, number >> 7))
        return made


_LOW, _SHORT = _Low(), _Short()


def varint(number: int) -> bytes:
    """Return a number from 0 to 2^64 - 1 as protobuf writes it."""
    if number < _STEP:
        return _SHORT[number]
    return _LOW[number & _STEP - 1] + varint(number >> _STEP_BITS)


def number_field(field: int, number: int) -> bytes:
    """Return a number as a field; nothing for 0, which is what a missing field means."""
    return _SHORT[field << 3 | _NUMBER] + varint(number) if number else b""


def bytes_field(field: int, data: bytes) -> bytes:
    """Return bytes, a text or a message as a field, also when they are empty."""
    return b"%b%b%b" % (_SHORT[field << 3 | _BYTES], varint(len(data)), data)
