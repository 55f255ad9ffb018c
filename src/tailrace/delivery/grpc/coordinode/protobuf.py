"""Fields of protobuf messages, written by hand where a message is sent a million times. Pure."""

__all__ = ["bytes_field", "number_field", "varint"]

_SMALL = [bytes([number]) for number in range(128)]
_NUMBER, _BYTES = 0, 2


def varint(number: int) -> bytes:
    """Return a number from 0 to 2^64 - 1 as protobuf writes it."""
    if number < 128:
        return _SMALL[number]
    parts = bytearray()
    while number >= 128:
        parts.append(number & 127 | 128)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def number_field(field: int, number: int) -> bytes:
    """Return a number as a field; nothing for 0, which is what a missing field means."""
    return varint(field << 3 | _NUMBER) + varint(number) if number else b""


def bytes_field(field: int, data: bytes) -> bytes:
    """Return bytes, a text or a message as a field, also when they are empty."""
    return b"%b%b%b" % (varint(field << 3 | _BYTES), varint(len(data)), data)
