"""Changes into a Delta table in object storage, against the same table in a directory, in one run.

The S3 server is moto, a process on the loopback interface: what is compared is our own work and the requests that it
makes, not the network. Both tables get the same batches in turn and are compared in the end.
"""

import socket
import subprocess
import sys
import tempfile
import time
from urllib.parse import urlencode

import httpx
import pyarrow as pa
import pyarrow.compute as pc

from bench.sink_delta import COLUMNS, SCHEMA, changes, ours
from tailrace.pipeline.sink.base import Mode
from tailrace.pipeline.sinks import sink_of

CHANGES = 600_000
BATCHES = 3
RATIO_MIN = {Mode.APPEND: 0.3, Mode.CURRENT: 0.3}
READY_S = 60


def served():
    """Start an S3 server with the bucket `bench`; return its process and endpoint."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    command = [sys.executable, "-c", "from moto.server import main; main()", "-p", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    endpoint = f"http://127.0.0.1:{port}"
    end = time.monotonic() + READY_S
    while True:
        try:
            httpx.put(f"{endpoint}/bench")
        except httpx.TransportError:
            if time.monotonic() > end:
                process.kill()
                raise
            time.sleep(0.05)
        else:
            return process, endpoint


def contents(sink):
    table = pa.Table.from_batches(sink.rows(SCHEMA)).select(COLUMNS).sort_by("id")
    return table.num_rows, round(pc.sum(table["total"]).as_py(), 2)


def run(mode, endpoint, directory):
    """Print how fast a mode is in both places; tell whether the bar is met."""
    options = urlencode({"endpoint": endpoint, "access_key_id": "bench", "secret_access_key": "bench"})
    urls = {"directory": f"delta://{directory}/{mode}", "s3": f"delta:s3://bench/{mode}?{options}"}
    sinks = {place: sink_of(url, mode, pipeline="bench") for place, url in urls.items()}
    spent, used = dict.fromkeys(urls, 0.0), dict.fromkeys(urls, 0.0)
    size = CHANGES // BATCHES
    for place, sink in sinks.items():
        sink.open([SCHEMA])
        for number in range(BATCHES):
            batch = changes(1 + number * size, size, number)
            begin, processor = time.perf_counter(), time.process_time()
            ours(sink, number, batch)
            spent[place] += time.perf_counter() - begin
            used[place] += time.process_time() - processor
    assert contents(sinks["s3"]) == contents(sinks["directory"]), "the tables differ"
    ratio = spent["directory"] / spent["s3"]
    good = ratio >= RATIO_MIN[mode]
    told = ", ".join(
        f"{place} {CHANGES / spent[place] / 1e3:.0f} k changes/s ({used[place]:.1f} s of processor)" for place in urls
    )
    verdict = "PASS" if good else "MISS"
    print(f"Delta {mode} in S3 / directory: {ratio:.2f} (bar {RATIO_MIN[mode]:.2f}) {verdict}  {told}", flush=True)
    return good


def main() -> int:
    process, endpoint = served()
    try:
        with tempfile.TemporaryDirectory() as directory:
            good = [run(mode, endpoint, directory) for mode in RATIO_MIN]
    finally:
        process.kill()
        process.wait()
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
