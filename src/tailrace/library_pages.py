"""Letting go of the pages of libraries that starting has touched. Linux only.

The dynamic loader, static initialisers and imports touch tens of megabytes of libraries that an idle server never looks
at again. The pages are clean: the system would take them back when it runs short, so nothing is freed that was truly
in use, and what is needed again comes back from the page cache without a read. But until then they count as resident
memory, which is what limits of containers, orchestrators and people look at.
"""

import ctypes
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

__all__ = ["Mapping", "drop_library_pages", "droppable", "mappings"]

_DONT_NEED = 4
"""MADV_DONTNEED: the pages are taken out of this process; a page of a file is mapped again when it is touched."""

_LIBRARY = re.compile(r"/.+\.so(\.[0-9.]+)?")
_FIRST_LINE = re.compile(r"([0-9a-f]+)-([0-9a-f]+) (\S{4}) \S+ \S+ \d+\s*(.*)")


class Mapping(Struct, frozen=True):
    """A part of this process's memory, as the system lists it; sizes in KiB."""

    begin: int
    end: int
    permissions: str
    path: str
    resident: int
    own: int
    """Pages of no file, or no longer of it: relocations, for one. They would be lost."""


def drop_library_pages(listing: Path = Path("/proc/self/smaps")) -> int:
    """Take clean pages of libraries out of this process; return how many KiB. Where that cannot be done, do nothing."""
    dropped = 0
    with suppress(OSError, ValueError, AttributeError):
        advise = ctypes.CDLL(None, use_errno=True).madvise
        advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        for mapping in droppable(mappings(listing.read_text().splitlines())):
            if advise(mapping.begin, mapping.end - mapping.begin, _DONT_NEED) == 0:
                dropped += mapping.resident
    return dropped


def droppable(listed: Iterable[Mapping]) -> Iterator[Mapping]:
    """Yield mappings of libraries that can be read alone and hold nothing but what is in the file."""
    for mapping in listed:
        if mapping.permissions in {"r--p", "r-xp"} and not mapping.own and _LIBRARY.fullmatch(mapping.path):
            yield mapping


def mappings(lines: Iterable[str]) -> Iterator[Mapping]:
    """Yield the mappings in a listing such as /proc/self/smaps. One of which a size is missing is left out."""
    begun: tuple[int, int, str, str] | None = None
    sizes: dict[str, int] = {}
    for line in lines:
        first = _FIRST_LINE.fullmatch(line)
        if first:
            yield from _mapping(begun, sizes)
            begun, sizes = (int(first[1], 16), int(first[2], 16), first[3], first[4]), {}
        else:
            name, _, value = line.partition(":")
            if value.endswith(" kB"):
                sizes[name] = int(value[:-3])
    yield from _mapping(begun, sizes)


def _mapping(begun: tuple[int, int, str, str] | None, sizes: dict[str, int]) -> Iterator[Mapping]:
    if begun is not None and sizes.keys() >= {"Rss", "Anonymous", "Private_Dirty", "Shared_Dirty"}:
        own = max(sizes["Anonymous"], sizes["Private_Dirty"], sizes["Shared_Dirty"])
        yield Mapping(*begun, sizes["Rss"], own)
