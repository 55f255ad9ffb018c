"""What `tailrace pipeline run` tells: lines of JSON, or a line that moves on a terminal."""

import sys
import time
from typing import Any

import click
import msgspec

from tailrace.cli.access import counted
from tailrace.meta.pipeline import Figures
from tailrace.pipeline.watcher import Watcher

__all__ = ["JsonWatcher", "TextWatcher"]

_BAR_WIDTH = 30
_PAUSE_S = 2.0
_PAUSE_OF_MANY_S = 60.0
"""How often a line is written where there is no terminal, or where there are several pipelines."""


class TextWatcher(Watcher):
    """Tells people, on standard error; of one of several pipelines by its name, and not so often."""

    def __init__(self, pipeline: str = "") -> None:
        self._prefix = f"{pipeline}: " if pipeline else ""
        self._moving = sys.stderr.isatty() and not pipeline
        self._pause_s = _PAUSE_OF_MANY_S if pipeline else _PAUSE_S
        self._last_s = -self._pause_s
        self._open = False

    def waiting(self, owner: str) -> None:
        """Tell who has the pipeline."""
        self._line(f"waiting: worker {owner} has the pipeline")

    def starting(self, what: str) -> None:
        """Tell where Spark runs."""
        self._line(f"starting Spark: {what}")

    def spark_ui(self, url: str) -> None:
        """Tell where Spark's own pages are."""
        self._line(f"Spark UI: {url}")

    def copied(self, rows: int, total: int, rows_per_s: float) -> None:
        """Show a bar, the rate and the time left."""
        part = min(1.0, rows / total) if total else 1.0
        bar = ("█" * round(part * _BAR_WIDTH)).ljust(_BAR_WIDTH, "░")
        text = f"copying  {bar} {part:4.0%}  {rows:,} of about {counted(total, 'row')}"
        if (left_s := _left_s(rows, total, rows_per_s)) is not None:
            text += f"  {rows_per_s:,.0f}/s  {_duration(left_s)} left"
        self._move(text, last=rows >= total)

    def comparing(self, reason: str) -> None:
        """Tell that it takes a while."""
        self._line(f"comparing source and sink, copying what differs: {reason}")

    def away(self, problem: str) -> None:
        """Tell why it does not go on."""
        self._line(f"waiting for the sink: {problem}")

    def failed(self, problem: str, again_s: float | None) -> None:
        """Tell what is wrong."""
        self._line(f"{problem}{'' if again_s is None else f' (tried again in {again_s:.0f} s)'}")

    def followed(self, figures: Figures) -> None:
        """Show rate and lag."""
        self._move(f"following  {counted(figures.changes, 'change')}  {figures.changes_per_s:,.0f}/s", last=False)

    def end(self) -> None:
        """Leave the moving line."""
        if self._open:
            click.echo(err=True)
            self._open = False

    def _line(self, text: str) -> None:
        self.end()
        click.echo(f"{self._prefix}{text}", err=True)

    def _move(self, text: str, *, last: bool) -> None:
        if self._moving:
            click.echo(f"\r\x1b[K{text}", nl=False, err=True)
            self._open = True
        elif last or time.monotonic() - self._last_s >= self._pause_s:
            self._last_s = time.monotonic()
            click.echo(f"{self._prefix}{text}", err=True)


class JsonWatcher(Watcher):
    """Tells programs, on standard output, one object a line; of one of several pipelines with its name."""

    def __init__(self, pipeline: str = "") -> None:
        self._named = {"pipeline": pipeline} if pipeline else {}

    def waiting(self, owner: str) -> None:
        """Tell who has the pipeline."""
        self._tell("waiting", owner=owner)

    def starting(self, what: str) -> None:
        """Tell where Spark runs."""
        self._tell("starting", spark=what)

    def spark_ui(self, url: str) -> None:
        """Tell where Spark's own pages are."""
        self._tell("spark_ui", url=url)

    def copied(self, rows: int, total: int, rows_per_s: float) -> None:
        """Tell how many rows have been copied; `left_s` is null where nobody knows."""
        left_s = _left_s(rows, total, rows_per_s)
        self._tell("copied", rows=rows, total=total, rows_per_s=round(rows_per_s, 1), left_s=left_s)

    def comparing(self, reason: str) -> None:
        """Tell that source and sink are compared."""
        self._tell("comparing", reason=reason)

    def away(self, problem: str) -> None:
        """Tell why it does not go on."""
        self._tell("away", problem=problem)

    def failed(self, problem: str, again_s: float | None) -> None:
        """Tell what is wrong."""
        self._tell("failed", problem=problem, again_s=again_s)

    def followed(self, figures: Figures) -> None:
        """Tell how the log is followed."""
        self._tell("followed", **msgspec.to_builtins(figures))

    def end(self) -> None:
        """Nothing is left open."""

    def _tell(self, event: str, **members: Any) -> None:
        click.echo(msgspec.json.encode({"event": event, **self._named, **members}))


def _left_s(rows: int, total: int, rows_per_s: float) -> int | None:
    """Return about how many seconds the rest takes; None where nobody knows."""
    if rows >= total:
        return 0
    return round((total - rows) / rows_per_s) if rows_per_s > 0 else None


def _duration(seconds: int) -> str:
    """Return a duration as people read it: two units at most."""
    if seconds < 60:
        return f"{seconds} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
