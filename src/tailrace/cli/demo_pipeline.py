"""The demo's pipeline: the shop's tables in Delta tables, kept up to date with Spark, and compared in the end."""

import asyncio
import contextlib
import importlib.util
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import click

from tailrace.demo import TABLES
from tailrace.extra import how_to_install
from tailrace.model.errors import ConfigError, TailraceError

__all__ = ["DemoPipeline"]

_RUN_MAX_S = 300.0
_STOP_MAX_S = 20.0


class DemoPipeline:
    """A pipeline of the shop in a directory, run by processes of its own, as a user would."""

    def __init__(self, directory: Path, server: str) -> None:
        self._directory = directory
        self._server = server

    def skipped(self) -> str | None:
        """Tell why there can be no pipeline here; None where there can."""
        for module in ("pyspark", "deltalake", "duckdb"):
            if importlib.util.find_spec(module) is None:
                return f"the pipeline is left out: {module} is not installed ({how_to_install('spark')})"
        from tailrace.pipeline.spark import find_java

        try:
            find_java(self._directory)
        except ConfigError as error:
            return f"the pipeline is left out: {error}"
        return None

    async def create(self) -> None:
        """Make the pipeline."""
        tables = [part for table in TABLES for part in ("--table", table)]
        sink = f"delta://{self._directory / 'lake'}/{{table}}"
        await self._run("create", *tables, "--sink", sink, "--server", self._server)

    async def drain(self) -> None:
        """Copy what is new into the Delta tables, and show how that goes."""
        await self._run("run", "--once", "--master", "local[2]", shown=True)

    async def copied(self) -> bool:
        """Tell whether the tables have been copied, so that they can be compared."""
        try:
            return bool(json.loads(await self._run("status", "--json"))["stage"] == "incremental_log")
        except TailraceError:  # it was never made
            return False

    async def verify(self) -> None:
        """Compare the Delta tables with the shop's, and say so.

        Raises:
            TailraceError: They are not equal.
        """
        for line in (await self._run("verify")).splitlines():
            click.echo(f"demo: {line}" if not line.startswith(" ") else line)

    @contextlib.asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Keep the Delta tables up to date within a `with` block."""
        with (self._directory / "pipeline.log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *self._command("run", "--master", "local[2]"), stdout=log, stderr=log, start_new_session=True
            )
        try:
            yield
        finally:
            if process.returncode is None:
                process.terminate()
            try:
                await asyncio.wait_for(process.wait(), _STOP_MAX_S)
            except TimeoutError:
                process.kill()
                await process.wait()

    async def _run(self, verb: str, *options: str, shown: bool = False) -> str:
        """Run a command to its end and return what it printed; with `shown`, people see what it says meanwhile."""
        process = await asyncio.create_subprocess_exec(
            *self._command(verb, *options),
            stdout=asyncio.subprocess.PIPE,
            stderr=None if shown else asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        try:
            output, errors = await asyncio.wait_for(process.communicate(), _RUN_MAX_S)
        except TimeoutError:
            process.kill()
            await process.wait()
            raise TailraceError(f"demo: `pipeline {verb}` did not end in {_RUN_MAX_S:g} s") from None
        if process.returncode:
            said = (errors or output).decode().strip()[-2000:] or "its message is above"
            raise TailraceError(f"demo: `pipeline {verb}` failed: {said}")
        return output.decode()

    def _command(self, verb: str, *options: str) -> list[str]:
        place = ["--data-dir", str(self._directory / "worker")]
        return [sys.executable, "-m", "tailrace", "pipeline", verb, "shop", *options, *place]
