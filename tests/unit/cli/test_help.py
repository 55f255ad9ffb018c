"""Facts about the help of the commands."""

import os
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from tailrace.cli.group import tailrace
from tailrace.cli.serve import serve


def commands(command=tailrace, words=()):
    """Yield each group of the command line with the words that call it."""
    yield words, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from commands(command.get_command(context, name), (*words, name))


ALL = list(commands())


@pytest.mark.parametrize("words", [words for words, _ in ALL], ids=" ".join)
def test_no_help_is_cut(words):
    shown = CliRunner().invoke(tailrace, [*words, "--help"], terminal_width=80)
    assert shown.exit_code == 0
    cut = [line for line in shown.output.splitlines() if line.endswith("...") and "Usage" not in line]
    assert cut == []


def test_the_options_of_serve_are_in_groups_and_none_is_left_over():
    shown = CliRunner().invoke(tailrace, ["serve", "--help"], terminal_width=80).output
    assert "\nSources and data:\n" in shown
    assert "\nPullers (JimDB interface):\n" in shown
    assert "Other options" not in shown
    for parameter in serve.params:
        if isinstance(parameter, click.Option):
            assert parameter.opts[0] in shown


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_a_script_that_asks_the_command(shell):
    shown = CliRunner().invoke(tailrace, ["completion", shell])
    assert shown.exit_code == 0
    assert "_TAILRACE_COMPLETE" in shown.output
    assert CliRunner().invoke(tailrace, ["completion", "tcsh"]).exit_code == 2


@pytest.mark.parametrize(
    ("words", "fits"),
    [("tailrace pi", "pipeline"), ("tailrace subs cr", "create"), ("tailrace serve --http", "--http-port")],
)
def test_the_script_is_told_what_fits(words, fits):
    count = str(len(words.split()) - 1)
    asked = {"_TAILRACE_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": count}
    command = [sys.executable, "-m", "tailrace"]
    told = subprocess.run(command, env={**os.environ, **asked}, capture_output=True, text=True, timeout=60, check=False)
    assert f"plain,{fits}" in told.stdout.splitlines()
