"""Help of the commands: whole sentences in lists of commands, and options in groups."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import click

__all__ = ["Group", "GroupedCommand"]


class Group(click.Group):
    """A group whose list of commands shows the first sentence of each one's help whole."""

    group_class = type  # groups in it are of the same kind

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands."""
        commands = [(name, self.get_command(context, name)) for name in self.list_commands(context)]
        rows = [(name, _sentence(command.help or "")) for name, command in commands if command and not command.hidden]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class GroupedCommand(click.Command):
    """A command whose options are listed under headings; those without one come last."""

    headings: ClassVar[Mapping[str, Sequence[str]]] = {}
    """Prefixes of the names of the options of each heading; the first heading that has one counts."""

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options by their headings."""
        lists: dict[str, list[tuple[str, str]]] = {heading: [] for heading in (*self.headings, "Other options")}
        for parameter in self.get_params(context):
            record = parameter.get_help_record(context) if isinstance(parameter, click.Option) else None
            if record is not None:
                lists[self._heading(parameter)].append(record)
        for heading, rows in lists.items():
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)

    def _heading(self, parameter: click.Parameter) -> str:
        name = "help" if "--help" in parameter.opts else parameter.name or ""
        for heading, prefixes in self.headings.items():
            if name.startswith(tuple(prefixes)):
                return heading
        return "Other options"


def _sentence(text: str) -> str:
    """Return the first sentence of a help text, on one line."""
    paragraph = " ".join(text.strip().split("\n\n")[0].split())
    head, stop, _ = paragraph.partition(". ")
    return head + "." if stop else paragraph
