from typing import TypeAlias

import pyarrow as pa

LAYOUT: str

_Column: TypeAlias = tuple[bytes, bytes | None, bytes | None, int, bytes | None]

def decode(
    count: int, offsets: pa.Buffer, data: pa.Buffer, begin: int, columns: list[tuple[bytes, int]], /
) -> tuple[list[_Column | None], bool]: ...
