"""Published clients, each in an environment and a process of its own: two definitions of a message cannot share one."""

import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from locking import alone
from serving import DEADLINE_S

SCRIPTS = Path(__file__).parent / "published"
INSTALL_S = 300.0


class Published:
    """A published package, installed, and the script that uses it."""

    def __init__(self, python: Path, script: Path) -> None:
        self.python = python
        self.script = script

    def start(self, *arguments: object) -> "Running":
        """Start the script; its standard output is one JSON value a line."""
        return Running([str(self.python), str(self.script), *(_text(argument) for argument in arguments)])

    def run(self, *arguments: object) -> list[object]:
        """Run the script to its end and return its lines."""
        running = self.start(*arguments)
        lines = list(running.rest())
        assert running.stop() == 0, lines
        return lines


class Running:
    """A script that runs. `kill` ends it the hard way."""

    def __init__(self, command: list[str]) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
        self._lines: queue.Queue[bytes] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def line(self) -> object:
        """Return the next line; None at the end."""
        line = self._lines.get(timeout=DEADLINE_S)
        return json.loads(line) if line else None

    def lines(self, count: int) -> list[object]:
        """Return the next lines."""
        return [self.line() for _ in range(count)]

    def rest(self):
        """Yield the lines up to the end."""
        while (line := self.line()) is not None:
            yield line

    def kill(self) -> None:
        """End it the hard way."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.stop()

    def stop(self) -> int:
        """Wait for its end; return the exit code."""
        code = self.process.wait(DEADLINE_S)
        self._reader.join(DEADLINE_S)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(b"")


def published(config: pytest.Config, requirement: str, script: str) -> Published:
    """Return a package as the registry has it; kept in the cache of the tests. Skips where it cannot be had."""
    directory = Path(config.cache.mkdir("clients")) / requirement.replace("==", "-")
    python = directory / "bin" / "python"
    done = directory / ".installed"
    with alone(directory.with_suffix(".lock")):
        if not done.exists():
            shutil.rmtree(directory, ignore_errors=True)
            _install(directory, python, requirement)
            done.touch()
    return Published(python, SCRIPTS / script)


def _install(directory: Path, python: Path, requirement: str) -> None:
    uv = shutil.which("uv") or str(Path(sys.executable).parent / "uv")
    if Path(uv).exists():
        commands = [[uv, "venv", "--python", sys.executable, directory], [uv, "pip", "install", "--python", python]]
    else:
        commands = [[sys.executable, "-m", "venv", directory], [python, "-m", "pip", "install", "-q"]]
    commands[1].append(requirement)
    for command in commands:
        try:
            made = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            pytest.skip(f"{requirement} cannot be installed here: {type(error).__name__}")
        if made.returncode:
            last = (made.stderr.strip() or made.stdout.strip() or "no reason told").splitlines()[-1]
            pytest.skip(f"{requirement} cannot be installed here: {last}")


def _text(argument: object) -> str:
    return argument if isinstance(argument, str) else json.dumps(argument)
