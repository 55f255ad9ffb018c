"""Facts about giving memory back."""

import asyncio
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tailrace.reclaim import Reclaimer, loaded_pages, open_descriptors, trim


@pytest.mark.parametrize(
    ("counts", "collected"),
    [
        ([10, 2000, 2000, 10, 10], [3]),
        ([2000, 1200, 900, 800], [2]),
        ([400, 10], []),
        ([10_000, 9_000, 8_000], []),
        ([2000, 10, 2000, 10], [1, 3]),
    ],
    ids=["all at once", "more than are left", "few", "fewer than are left", "again"],
)
async def test_garbage_is_collected_when_more_connections_have_gone_than_are_left(counts, collected):
    calls, seen = [], []

    def count():
        seen.append(counts[len(seen)])
        return seen[-1]

    reclaimer = Reclaimer(count, lambda: calls.append(len(seen) - 1), lambda: None)
    while len(seen) < len(counts):
        await reclaimer.look()
    assert calls == collected


async def test_unused_memory_is_given_back_then_and_from_time_to_time():
    counts, trims = [600, *[1] * 20], []
    reclaimer = Reclaimer(lambda: counts.pop(0), lambda: None, lambda: trims.append(len(counts)))
    while counts:
        await reclaimer.look()
    assert trims == [19, 7]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="nobody tells how many there are")
def test_open_connections_are_counted():
    before = open_descriptors()
    with socket.socket(), socket.socket():
        assert open_descriptors() == before + 2


def test_trimming_does_no_harm():
    trim()


async def test_what_starting_took_is_given_back_first():
    done, given_back = [], asyncio.Event()
    loop = asyncio.get_running_loop()

    def give_back():
        done.append("trim")
        loop.call_soon_threadsafe(given_back.set)

    reclaimer = Reclaimer(lambda: 1, lambda: None, give_back, lambda: done.append("unload"))
    running = asyncio.create_task(reclaimer.run())
    await asyncio.wait_for(given_back.wait(), 30)
    running.cancel()
    assert done == ["unload", "trim"]


def mapping(permissions, name, anonymous_kb, begin="7f00", end="7f10"):
    return (
        f"{begin}-{end} {permissions} 00000000 08:01 1234                       {name}\n"
        "Size:                 64 kB\nRss:                  64 kB\nPrivate_Dirty:         0 kB\n"
        f"Anonymous:        {anonymous_kb:6d} kB\nAnonHugePages:         0 kB\nVmFlags: rd mr mw me sd\n"
    )


LIBRARY = "/usr/lib/libarrow.so.2600"


@pytest.mark.parametrize(
    ("permissions", "name", "anonymous_kb", "can_go"),
    [
        ("r-xp", LIBRARY, 0, True),
        ("r--p", LIBRARY, 0, True),
        ("r-xp", "/a place/lib.cpython-311-x86_64-linux-gnu.so", 0, True),
        ("r--p", LIBRARY, 4, False),
        ("rw-p", LIBRARY, 0, False),
        ("r--s", LIBRARY, 0, False),
        ("r-xp", LIBRARY + " (deleted)", 0, False),
        ("r--p", "/var/lib/app.db", 0, False),
        ("r-xp", "[vdso]", 0, False),
        ("r--p", "", 0, False),
    ],
    ids=["code", "constants", "extension", "linked", "writable", "shared", "replaced", "other", "system", "no file"],
)
def test_only_pages_of_libraries_that_are_as_in_the_file_are_left_out(permissions, name, anonymous_kb, can_go):
    around = [mapping("rw-p", "", 8, "10", "20"), mapping("rw-p", "[heap]", 8, "8000", "9000")]
    maps = mapping(permissions, name, anonymous_kb).join(around)
    assert list(loaded_pages(maps)) == ([(0x7F00, 0x7F10)] if can_go else [])


UNLOADED = """
import re
from pathlib import Path
import pyarrow as pa
import pyarrow.compute as pc
from tailrace.reclaim import unload

def of_files():
    return int(re.search(r"RssFile:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

before = of_files()
unload()
after = of_files()
assert pc.sum(pa.array(range(1000))).as_py() == 499500
print(before - after)
"""


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="nobody tells what is loaded")
def test_libraries_work_after_they_were_left_out_of_memory():
    ran = subprocess.run([sys.executable, "-c", UNLOADED], capture_output=True, check=True, text=True)
    assert int(ran.stdout) > 10_000
