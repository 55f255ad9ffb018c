from collections.abc import Callable

import pyarrow as pa

LAYOUT: str

def find(
    data: bytes | memoryview,
    frames: list[tuple[int, int]],
    head: bytes,
    places: tuple[int, int, int, int],
    kinds: bytes,
    tests: list[tuple[int, int, bytes | None, bytes | None]],
    ops: int,
    limit: int,
    /,
) -> tuple[int, int, int, int, bytes | None] | None: ...
def join(
    parts: list[bytes],
    head: bytes,
    places: tuple[int, int, int, int],
    allocate: Callable[[int], pa.Buffer],
    /,
) -> pa.Buffer: ...
