"""Finding the wanted changes of frames by the compiled helper, without a batch for each frame. Pure.

Optional: where it is not there, or does not know what is wanted or how a frame is written, `tailrace.log.pick` finds
them with Arrow's functions. See docs/decisions/compiled-helper.md.
"""

from array import array
from collections.abc import Sequence
from itertools import accumulate

import pyarrow as pa

from tailrace.compiled import find_compiled
from tailrace.log.payload import message_head
from tailrace.model.chunk import ENVELOPE
from tailrace.model.wanted import AnyKey, KeyWanted, KeyWithin, Wanted

__all__ = ["Finder", "Found", "compiled", "joined"]

compiled = find_compiled("tailrace.log._pick", " ".join(ENVELOPE.names))
"""The compiled helper; None where it was not built or is switched off."""

_TESTS_MAX = 200
_SCHEMAS_MAX = 65536
_OPS_MAX = 63
_NONE, _ANY, _FIRST_TEST = range(3)
_INT64_MAX = 2**63 - 1

_Test = tuple[int, int, bytes | None, bytes | None]

Found = tuple[int, int, int, int, bytes | None]
"""How many changes may be wanted, the newest schema version, first and last offset of the frames, and the changes,
packed; None in place of these where they are more than the limit: then they were not counted to the end."""


class Finder:
    """Finds what a reader may want."""

    @classmethod
    def of(cls, wanted: Wanted) -> "Finder | None":
        """Return one; None where there is no compiled helper, or it cannot look for this."""
        distinct = set(wanted.schemas.values()) - {AnyKey()}
        large = wanted.known > _SCHEMAS_MAX or len(distinct) > _TESTS_MAX or max(wanted.ops, default=0) > _OPS_MAX
        return None if compiled is None or large else cls(wanted)

    def __init__(self, wanted: Wanted) -> None:
        kinds = bytearray(wanted.known + 1)
        numbers: dict[KeyWanted, int] = {AnyKey(): _ANY}
        for schema, key in wanted.schemas.items():
            if schema <= wanted.known:
                kinds[schema] = numbers.setdefault(key, len(numbers) - 1 + _FIRST_TEST)
        self._kinds = bytes(kinds)
        self._tests = [_test_of(key) for key in numbers if not isinstance(key, AnyKey)]
        self._ops = sum(1 << op for op in wanted.ops)

    def find(self, data: bytes | memoryview, frames: list[tuple[int, int]], limit: int) -> Found | None:
        """Return what of some frames may be wanted, given the place of each payload and its size; None: ask Arrow."""
        assert compiled is not None
        head = message_head()
        found: Found | None = compiled.find(
            data, frames, head.data, head.places, self._kinds, self._tests, self._ops, limit
        )
        return found


def joined(parts: Sequence[bytes]) -> pa.RecordBatch:
    """Return packed changes, at least one, as one batch."""
    assert compiled is not None
    head = message_head()
    made = compiled.join(list(parts), head.data, head.places, pa.allocate_buffer)
    return pa.ipc.read_record_batch(made, ENVELOPE)


def _test_of(key: KeyWanted) -> _Test:
    match key:
        case KeyWithin(lower, upper):
            return _bounded(lower), _bounded(upper), None, None
        case AnyKey():
            raise AssertionError("all keys need no test")
        case _:
            keys = sorted(key.keys, key=lambda each: (len(each), each))
            return 0, 0, b"".join(keys), array("i", accumulate(map(len, keys))).tobytes()


def _bounded(number: int) -> int:
    return max(-_INT64_MAX - 1, min(number, _INT64_MAX))
