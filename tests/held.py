"""How much memory an object really keeps from being used otherwise, found by looking at everything it refers to."""

import gc
import sys
from types import BuiltinFunctionType, FunctionType, ModuleType

import pyarrow as pa

_SHARED = (type, ModuleType, FunctionType, BuiltinFunctionType, pa.Schema, pa.DataType, pa.Scalar)


def held_memory(*objects: object) -> int:
    """Return the bytes of everything that can be reached, a buffer of which a part is shown counted whole."""
    seen: dict[int, object] = {}  # and alive, so that no id is given twice
    buffers: dict[int, int] = {}
    waiting: list[object] = list(objects)
    total = 0
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, _SHARED):
            continue
        seen[id(one)] = one
        if isinstance(one, pa.RecordBatch):
            waiting += [buffer for column in one.columns for buffer in column.buffers() if buffer is not None]
        elif isinstance(one, pa.Buffer):
            while one.parent is not None:
                one = one.parent
            buffers[one.address] = one.size
        elif isinstance(one, memoryview):
            waiting.append(one.obj)
        else:
            total += sys.getsizeof(one)
            waiting += gc.get_referents(one)
    return total + sum(buffers.values())
