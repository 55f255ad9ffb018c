"""Facts about letting go of the pages of libraries."""

import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.library_pages import drop_library_pages, droppable, mappings

LISTING = """\
7f0000000000-7f0000400000 r--p 00000000 fe:00 1234                       /usr/lib/libarrow.so.2600
Size:               4096 kB
Rss:                2048 kB
Shared_Dirty:          0 kB
Private_Dirty:         0 kB
Anonymous:             0 kB
VmFlags: rd mr mw me
"""


def listed(first_line: str, **sizes: int) -> str:
    known = {"Rss": 2048, "Shared_Dirty": 0, "Private_Dirty": 0, "Anonymous": 0} | sizes
    return "\n".join([first_line, *(f"{name}: {size:8d} kB" for name, size in known.items())])


def line(permissions: str = "r--p", path: str = "/usr/lib/libarrow.so.2600") -> str:
    return f"7f0000000000-7f0000400000 {permissions} 00000000 fe:00 1234    {path}"


@pytest.mark.parametrize(
    ("listing", "dropped"),
    [
        (LISTING, 2048),
        (listed(line("r-xp")), 2048),
        (listed(line(path="/opt/my env/lib.cpython-311-x86_64-linux-gnu.so")), 2048),
        (listed(line(), Anonymous=4), 0),
        (listed(line(), Private_Dirty=4), 0),
        (listed(line("rw-p")), 0),
        (listed(line("r--s")), 0),
        (listed(line(path="")), 0),
        (listed(line(path="[heap]")), 0),
        (listed(line(path="/data/app.db-shm")), 0),
        (listed(line(path="/usr/lib/libold.so (deleted)")), 0),
        (line() + "\nRss:  2048 kB", 0),
        ("", 0),
        ("what is this?", 0),
    ],
    ids=[
        "read-only data",
        "code",
        "an extension module",
        "relocations",
        "dirty pages",
        "data",
        "shared",
        "no file",
        "the heap",
        "no library",
        "a file that is gone",
        "sizes that are missing",
        "nothing",
        "something else",
    ],
)
def test_only_what_is_unchanged_and_read_alone_of_libraries_is_let_go(listing, dropped):
    assert sum(mapping.resident for mapping in droppable(mappings(listing.splitlines()))) == dropped


def test_where_nothing_is_listed_nothing_is_done(tmp_path):
    assert drop_library_pages(tmp_path / "smaps") == 0


WORK = """
import pathlib, re, pyarrow as pa, pyarrow.compute as pc
from tailrace.library_pages import drop_library_pages
def resident():
    return int(re.search(r"RssFile:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1])
before = resident()
dropped = drop_library_pages()
after = resident()
assert pc.sum(pa.array(range(1000))).as_py() == 499500
print(before, dropped, after)
"""


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="the system does not tell what is resident")
def test_a_process_goes_on_with_fewer_resident_pages():
    ended = subprocess.run([sys.executable, "-c", WORK], check=True, capture_output=True, text=True)
    before, dropped, after = map(int, ended.stdout.split())
    assert dropped > before / 2
    assert after < before / 2
