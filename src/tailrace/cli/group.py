"""The command `tailrace`: finds the commands, and turns our errors into exit codes."""

import importlib
import sys

import click

from tailrace import __version__
from tailrace.model.errors import ConfigError, TailraceError

__all__ = ["main", "tailrace"]

_COMMANDS = {
    "serve": "tailrace.cli.serve:serve",
    "tail": "tailrace.cli.tail:tail",
    "demo": "tailrace.cli.demo:demo",
    "log": "tailrace.cli.log:log",
    "capture": "tailrace.cli.capture:capture",
}
"""Where each command lives. It is imported when called, so that `--help` and small commands start at once."""


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, _, name = _COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tailrace")
def tailrace() -> None:
    """Capture every committed row change of a database and deliver it live."""


def main() -> None:
    """Run the command line and exit."""
    try:
        code = tailrace.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        code = 130
    except ConfigError as error:
        click.echo(f"tailrace: {error}", err=True)
        code = 2
    except TailraceError as error:
        click.echo(f"tailrace: {error}", err=True)
        code = 1
    sys.exit(code or 0)
