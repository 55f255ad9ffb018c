from typing import Any

import pyarrow as pa

LAYOUT: str

def join(count: int, parts: list[tuple[Any, ...]], framed: bool, /) -> tuple[bytes, bytes] | None: ...
def contains(buffer: pa.Buffer, begin: int, end: int, sought: bytes, /) -> bool: ...
