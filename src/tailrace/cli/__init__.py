"""The command line. `tailrace --help` lists the commands; docs/reference/cli.md describes them.

Exit codes: 0 done, 1 it failed, 2 the command line or the configuration is wrong, 130 interrupted.
"""

from tailrace.cli.group import main

__all__ = ["main"]
