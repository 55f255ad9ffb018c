"""Pages of the docs whose commands and programs are run."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

__all__ = ["Page"]

DOCS = Path(__file__).parent.parent / "docs"
START_S = 240.0


class Page:
    """A page, and where its commands and programs are run."""

    def __init__(self, name: str, directory: Path, environment: Mapping[str, str]) -> None:
        self.text = (DOCS / name).read_text()
        self.directory = directory
        self.environment = {**os.environ, **environment}

    def commands(self, place: int | None = None) -> list[str]:
        """Return the commands of one block, or of all."""
        chosen = self.blocks("sh") if place is None else [self.blocks("sh")[place]]
        return [line for block in chosen for line in block.splitlines() if line.startswith("tailrace ")]

    def blocks(self, language: str) -> list[str]:
        return re.findall(rf"^```{language}\n(.*?)^```", self.text, re.DOTALL | re.MULTILINE)

    def run(self, command: str) -> str:
        """Run a command; return what it printed."""
        command = re.sub("^tailrace", f"{sys.executable} -m tailrace", command)
        return self._printed(["/bin/sh", "-c", command], command)

    def run_program(self, program: str) -> str:
        """Run a program in Python; return what it printed."""
        return self._printed([sys.executable, "-c", program], program)

    def _printed(self, command: list[str], shown: str) -> str:
        ran = subprocess.run(
            command,
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=START_S,
            check=False,
        )
        assert ran.returncode == 0, f"{shown}: {ran.stdout} {ran.stderr[-2000:]}"
        return ran.stdout + ran.stderr
