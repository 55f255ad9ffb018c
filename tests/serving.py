"""Tailrace as a process: started on free loopback ports, ended by pid."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx

DEADLINE_S = 60.0


def wait_until(condition, what, deadline_s=DEADLINE_S):
    """Call `condition` until it returns something true, and return that."""
    end = time.monotonic() + deadline_s
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > end:
            raise AssertionError(f"not in {deadline_s} s: {what}")
        time.sleep(0.005)


def run(*arguments, env=None, timeout=60, **options):
    """Run `tailrace` to its end."""
    command = [sys.executable, "-m", "tailrace", *map(str, arguments)]
    environment = {**os.environ, **(env or {})}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, env=environment, check=False, **options
    )


class Calls:
    """Calls of the server at `url`."""

    def get(self, path):
        """Return the answer to a GET request."""
        return httpx.get(f"{self.url}{path}", timeout=DEADLINE_S)

    def is_ready(self):
        return self.get("/ready").status_code == 200

    def call(self, method, params, **headers):
        """Call a method; return the result, or raise the error's code and message."""
        request = {"skeinql": "1.0", "id": 1, "method": method, "params": params}
        answer = httpx.post(f"{self.url}/api/v1/rpc", json=request, headers=headers, timeout=DEADLINE_S).json()
        if not answer["ok"]:
            raise AssertionError(f"{answer['error']['code']}: {answer['error']['message']}")
        return answer["result"]

    def subscribe(self, table, db="default", **options):
        """Subscribe to a table as soon as the server knows it; return the result."""

        def attempt():
            with contextlib.suppress(AssertionError):
                return self.call("cdc.subscribe_table", {"db": db, "table": table, **options})

        return wait_until(attempt, f"table {table} known")


class Server(Calls):
    """A running `tailrace serve`."""

    def __init__(self, data_dir: Path, *arguments: str, env: dict[str, str] | None = None) -> None:
        self.data_dir = data_dir
        command = [sys.executable, "-m", "tailrace", "serve", "--json", "--data-dir", str(data_dir)]
        command += ["--http-port", "0", "--grpc-port", "0", *arguments]
        self.errors = (data_dir.parent / f"{data_dir.name}.err").open("ab")
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=self.errors, env={**os.environ, **(env or {})}
        )
        self.addresses: dict[str, object] = {}

    def wait_ready(self) -> "Server":
        """Wait for the line that says where it listens."""
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], DEADLINE_S)
        line = self.process.stdout.readline() if ready else b""
        if not line:
            self.kill()
            raise AssertionError(f"the server did not start: {Path(self.errors.name).read_text()[-2000:]}")
        self.addresses = json.loads(line)
        return self

    @property
    def url(self) -> str:
        return str(self.addresses["http"])

    def kill(self) -> None:
        """End it the hard way."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self._reap()

    def stop(self) -> int:
        """End it the proper way; return the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self._reap()

    def _reap(self) -> int:
        code = self.process.wait(DEADLINE_S)
        if self.process.stdout:
            self.process.stdout.close()
        self.errors.close()
        return code
