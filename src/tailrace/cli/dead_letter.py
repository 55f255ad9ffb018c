"""`dlq` of pipelines and sinks: look at what was refused, have it sent again, or drop it."""

import functools
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

import click
import msgspec

from tailrace.cli.access import counted, table_lines
from tailrace.cli.help import Group
from tailrace.meta.dead_letter import Letter
from tailrace.meta.dead_letter_store import DeadLetterStore
from tailrace.model.errors import NotFoundError

__all__ = ["LetterPlace", "dead_letter_group"]


class LetterPlace(Protocol):
    """What the options of a command say about where dead letters are kept, and how to print."""

    def dead_letters(self) -> DeadLetterStore:
        """Return the dead letters of the metadata database."""

    def sink(self, name: str) -> str:
        """Return the name under which the dead letters of a sink or pipeline are kept."""

    def require(self, name: str) -> None:
        """Check that a sink or pipeline of that name exists.

        Raises:
            NotFoundError: There is not.
        """

    def show(self, result: Any, *lines: str) -> None:
        """Print a result: as one line of JSON, or as lines for people."""


def dead_letter_group(placed: Callable[[Callable[..., None]], Callable[..., None]]) -> click.Group:
    """Return the commands; `placed` gives each of them its `place`, a `LetterPlace`."""
    group = Group("dlq", help="Dead letters: changes that a sink refused.")
    for name, command in (("ls", _list), ("show", _show), ("retry", _retry), ("drop", _drop)):
        group.add_command(click.command(name)(placed(_copied(command))))
    return group


def _copied(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that can be given options without the other group's commands getting them too."""

    @functools.wraps(command)
    def run(*words: Any, **options: Any) -> None:
        command(*words, **options)

    vars(run)["__click_params__"] = list(vars(command)["__click_params__"])
    return run


_NAME = click.argument("name")
_IDS = click.argument("letter_ids", type=int, nargs=-1, metavar="[ID]...")


@click.argument("name", required=False)
@click.option(
    "--limit",
    type=click.IntRange(1, 100_000),
    default=100,
    show_default=True,
    help="Maximum number of dead letters to show.",
)
def _list(place: LetterPlace, name: str | None, limit: int) -> None:
    """List dead letters, the oldest first, of one sink or of all."""
    sink = None if name is None else place.sink(name)
    found = [_summary(letter) for letter in place.dead_letters().parked(sink, limit)]
    if name is not None and not found:
        place.require(name)
    columns = ("id", "sink", "table", "key", "offset", "op", "state", "tries", "parked", "reason")
    rows = [[one[column] for column in columns] for one in found]
    place.show(found, *(table_lines(columns, rows) if rows else ["there are no dead letters"]))


@_NAME
@click.argument("letter_id", type=int, metavar="ID")
def _show(place: LetterPlace, name: str, letter_id: int) -> None:
    """Show one letter with the row as it was before and after."""
    letter = place.dead_letters().get(place.sink(name), letter_id)
    if letter is None:
        raise NotFoundError(f"{name!r} has no dead letter {letter_id}")
    change = letter.change
    images = {
        image: None if data is None else msgspec.json.decode(data)
        for image, data in (("before", change.before), ("after", change.after))
    }
    whole = {**_summary(letter), "message_id": letter.message_id, "snapshot": letter.snapshot, **images}
    place.show(whole, *(f"{key:<10} {_text(value)}" for key, value in whole.items()))


@_NAME
@_IDS
@click.option("--all", "every", is_flag=True, help="All dead letters of the sink.")
def _retry(place: LetterPlace, name: str, letter_ids: tuple[int, ...], *, every: bool) -> None:
    """Retry dead letters, with all others of the same keys, in order. The sink sends them while it runs."""
    chosen = _chosen(letter_ids, every=every)
    count = place.dead_letters().retry(place.sink(name), chosen)
    _require(name, chosen, count)
    line = f"{counted(count, 'dead letter')} of {name} will be retried: now if the sink runs, else on its next run"
    place.show({"sink": name, "retried": count}, line)


@_NAME
@_IDS
@click.option("--all", "every", is_flag=True, help="All dead letters of the sink.")
def _drop(place: LetterPlace, name: str, letter_ids: tuple[int, ...], *, every: bool) -> None:
    """Drop dead letters without sending them. Later ones of the same keys stay: retry them."""
    chosen = _chosen(letter_ids, every=every)
    count = place.dead_letters().drop(place.sink(name), chosen)
    _require(name, chosen, count)
    place.show({"sink": name, "dropped": count}, f"{counted(count, 'dead letter')} of {name} dropped")


def _chosen(letter_ids: Sequence[int], *, every: bool) -> Sequence[int] | None:
    if bool(letter_ids) == every:
        raise click.UsageError("name dead letters by their ids, or give --all")
    return None if every else letter_ids


def _require(name: str, chosen: Sequence[int] | None, count: int) -> None:
    if chosen is not None and not count:
        raise NotFoundError(f"{name!r} has none of these dead letters")


def _summary(letter: Letter) -> dict[str, Any]:
    change = letter.change
    return {
        "id": letter.id,
        "sink": letter.sink,
        "source": change.schema.table.source,
        "table": change.schema.table.wire,
        "key": change.key.decode(errors="replace"),
        "offset": change.offset,
        "index": change.index,
        "op": change.op.word,
        "state": str(letter.state),
        "tries": letter.tries,
        "parked": datetime.fromtimestamp(letter.parked_time_us / 1e6, UTC).isoformat(timespec="seconds"),
        "reason": letter.reason,
    }


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
