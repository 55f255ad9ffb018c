"""The command `tailrace`: finds the commands, and turns our errors into exit codes."""

import importlib
import sys

import click
from click.shell_completion import CompletionItem, get_completion_class

from tailrace import __version__
from tailrace.cli.process import keep_small, leave
from tailrace.model.errors import ConfigError, TailraceError

__all__ = ["completion", "main", "tailrace"]

_COMPLETE = "_TAILRACE_COMPLETE"
"""The environment variable by which the completion script asks the command for candidates."""

_WHERE = {
    "bash": '~/.bashrc:  eval "$(tailrace completion bash)"',
    "zsh": '~/.zshrc:  eval "$(tailrace completion zsh)"',
    "fish": "~/.config/fish/completions/tailrace.fish:  tailrace completion fish | source",
}
"""Where the completion script of each shell goes."""

_COMMANDS = {
    "serve": "Capture the sources and serve HTTP and gRPC.",
    "tail": "Show changes as they are committed.",
    "subs": "List, create, pause and close subscriptions of a server.",
    "query": "Prepare queries on a server, run them, watch their results change.",
    "pipeline": "Copy tables into lakes, databases and files, and keep them up to date.",
    "sink": "Send changes to brokers, search engines and webhooks as they arrive.",
    "token": "Create, list and revoke API keys.",
    "log": "List, print and verify the log of a data directory.",
    "openapi": "Print the OpenAPI document of the HTTP interface.",
    "capture": "Set up, inspect and remove capture in a database.",
    "demo": "Show what Tailrace does with an example SQLite shop.",
    "completion": "Print the script that completes commands and options in a shell.",
}
"""The commands. Each is the function of that name in its module, imported when called, so that help starts at once.

`completion` alone is defined here.
"""


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        if cmd_name == completion.name:
            return completion
        module = importlib.import_module(f"tailrace.cli.{cmd_name}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands that fit without importing them: that would take seconds."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        return [CompletionItem(name, help=text) for name, text in _COMMANDS.items() if name.startswith(incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tailrace")
def tailrace() -> None:
    """Capture every committed row change of a database and deliver it live."""


@click.command(
    epilog="\b\nTo have it in every new shell, put this into\n" + "\n".join(f"  {line}" for line in _WHERE.values())
)
@click.argument("shell", type=click.Choice(list(_WHERE)))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that completes commands and options in a shell: bash, zsh or fish."""
    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(context.find_root().command, {}, "tailrace", _COMPLETE)
    click.echo(kind.source_template % script.source_vars())


def main() -> None:
    """Run the command line and exit."""
    if sys.argv[1:2] == ["serve"]:
        keep_small()
    try:
        code = tailrace.main(standalone_mode=False, complete_var=_COMPLETE)
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
    if "pyspark" in sys.modules:
        leave(code or 0)
    sys.exit(code or 0)
