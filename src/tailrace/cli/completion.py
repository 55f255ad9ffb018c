"""`tailrace completion`: the script that lets a shell complete commands and options."""

import click
from click.shell_completion import get_completion_class

__all__ = ["VARIABLE", "completion"]

VARIABLE = "_TAILRACE_COMPLETE"
"""The variable by which the script asks the command what fits."""

_WHERE = {
    "bash": '~/.bashrc:  eval "$(tailrace completion bash)"',
    "zsh": '~/.zshrc:  eval "$(tailrace completion zsh)"',
    "fish": "~/.config/fish/completions/tailrace.fish:  tailrace completion fish | source",
}


@click.command(
    epilog="\b\nTo have it in every new shell, put this into\n" + "\n".join(f"  {line}" for line in _WHERE.values())
)
@click.argument("shell", type=click.Choice(list(_WHERE)))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that completes commands and options in a shell: bash, zsh or fish."""
    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(context.find_root().command, {}, "tailrace", VARIABLE)
    click.echo(kind.source_template % script.source_vars())
