from collections.abc import Callable
from typing import Any

import pyarrow as pa

LAYOUT: str

def measure(rows: list[tuple[Any, ...]], schema_count: int, /) -> tuple[int, int] | None: ...
def encode(
    rows: list[tuple[Any, ...]],
    first_offset: int,
    first_index: int,
    first_hlc: int,
    head: bytes,
    places: tuple[int, int, int, int],
    allocate: Callable[[int], pa.Buffer],
    /,
) -> pa.Buffer | None: ...
