from collections.abc import Callable
from typing import Any

LAYOUT: str

def make_plan(
    number: int,
    columns: tuple[tuple[bytes, Callable[[bytes], bytes], int], ...],
    key: tuple[int, ...],
    whole_row: bool,
    /,
) -> object | None: ...
def whole(data: bytes | bytearray | memoryview, begin: int, end: int, /) -> int: ...
def rows_end(frames: bytes | bytearray | memoryview, begin: int, /) -> int: ...
def add(
    frames: bytes | bytearray | memoryview,
    begin: int,
    shapes: dict[int, Any],
    aborted: set[int] | None,
    columns: tuple[list[int], list[Any], list[bytes], list[bytes | None], list[bytes | None]],
    ops: tuple[int, int, int],
    limits: tuple[int, int],
    size_bytes: int,
    /,
) -> tuple[int, int]: ...
