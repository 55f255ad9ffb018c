"""A server that does nothing: its memory, and how long it takes to be ready, against bare Python in the same run.

The limit of memory is a process that has imported Arrow and waits; that of the start is one that imports uvicorn and
Arrow and ends. All have their byte code at hand, as an installation has after its first start.

Resident memory counts pages of libraries, which processes share and the system takes back when it needs them. A server
lets go of those that only its start has touched; the memory that is its own, which nobody can take back, is a line of
its own.
"""

import json
import os
import re
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import NamedTuple

ROUNDS = 5
SETTLED_S = 3.0
"""What starting took has been given back by then."""

RESIDENT_MB_MAX = 100
READY_S_MAX = 1.5

ARROW = "import pyarrow, pyarrow.compute, sys; print(flush=True); sys.stdin.read()"
IMPORTS = "import uvicorn, pyarrow"


class Memory(NamedTuple):
    """Megabytes of one process: resident now and at most, and what of it is no page of a file."""

    resident: float
    most: float
    own: float


def memory_of(pid: int) -> Memory:
    found = dict(re.findall(r"^(\w+):\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE))
    return Memory(*(int(found[name]) / 1024 for name in ("VmRSS", "VmHWM", "RssAnon")))


def spent_s() -> float:
    """Return the processor time of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def bare_memory(environment: dict[str, str]) -> Memory:
    """Return the memory of Python with Arrow."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", ARROW], env=environment, **pipes) as process:
        assert process.stdout
        process.stdout.readline()
        return memory_of(process.pid)  # which ends with its input


def bare_start(environment: dict[str, str]) -> tuple[float, float]:
    """Return the time that imports take, by the clock and by the processor."""
    begin_s, before_s = time.perf_counter(), spent_s()
    subprocess.run([sys.executable, "-c", IMPORTS], env=environment, check=True)
    return time.perf_counter() - begin_s, spent_s() - before_s


def is_ready(url: str) -> bool:
    try:
        return urllib.request.urlopen(f"{url}/ready", timeout=5).status == 200
    except urllib.error.HTTPError:
        return False


def served(directory: Path, environment: dict[str, str]) -> tuple[float, float, Memory]:
    """Start a server; return the time until it is ready, by the clock and by the processor, and its memory."""
    ports = ["--http-port", "0", "--grpc-port", "0", "--json", "--logging-level", "error"]
    source = f"app=sqlite:///{directory}/app.db"
    command = [sys.executable, "-m", "tailrace", "serve", "--source", source, "--data-dir", str(directory / "data")]
    begin_s = time.perf_counter()
    with subprocess.Popen([*command, *ports], env=environment, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout
            url = json.loads(process.stdout.readline())["http"]
            while not is_ready(url):
                time.sleep(0.005)
            ready_s = time.perf_counter() - begin_s
            ticks = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            worked_s = (int(ticks[11]) + int(ticks[12])) / os.sysconf("SC_CLK_TCK")
            time.sleep(SETTLED_S)
            return ready_s, worked_s, memory_of(process.pid)
        finally:
            process.terminate()


def report(name: str, measured: float, bar: float, detail: str) -> bool:
    good = measured <= bar
    print(f"{name:40s} {measured:8.2f}  bar <= {bar:g}  {'PASS' if good else 'MISS'}  {detail}", flush=True)
    return good


def main() -> int:
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPYCACHEPREFIX"] = str(directory / "byte-code")
        database = sqlite3.connect(directory / "app.db")
        database.executescript("PRAGMA journal_mode = WAL; CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT)")
        database.close()
        for warm in (bare_memory, bare_start):
            warm(environment)
        served(directory, environment)
        rounds = [(bare_start(environment), served(directory, environment)) for _ in range(ROUNDS)]
        bare = bare_memory(environment)
    memory = max(server[2] for _, server in rounds)
    bare_ready_s, bare_worked_s = (min(each) for each in zip(*(times for times, _ in rounds), strict=True))
    ready_s, worked_s = min(server[0] for _, server in rounds), min(server[1] for _, server in rounds)
    beside = f"Python with Arrow {bare.resident:.0f}; at most {memory.most:.0f} while it starts"
    start = (
        f"imports of uvicorn and Arrow {bare_ready_s:.2f}: {ready_s / bare_ready_s:.1f}x; "
        f"by the processor {worked_s:.2f} against {bare_worked_s:.2f}: {worked_s / bare_worked_s:.1f}x"
    )
    results = [
        report("idle server, resident memory, MB", memory.resident, RESIDENT_MB_MAX, beside),
        report("of that its own, in no file, MB", memory.own, RESIDENT_MB_MAX, f"Python with Arrow {bare.own:.0f}"),
        report("start to ready, best round, s", ready_s, READY_S_MAX, start),
    ]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
