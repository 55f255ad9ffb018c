"""Running a benchmark in a process that is set up as a server is: how memory is taken decides what reading costs."""

import subprocess
import sys
from pathlib import Path


def run_as_server(module: str) -> int:
    """Call `run` of a benchmark's module in a process of its own; return what that returns."""
    begin = "from tailrace.cli.process import keep_small; keep_small()"  # before Arrow is imported
    code = f"{begin}; import sys; from {module} import run; sys.exit(run())"
    return subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[1], check=False).returncode
