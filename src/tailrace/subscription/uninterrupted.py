"""Work that is done to its end also when whoever asked for it has gone away meanwhile."""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

__all__ = ["uninterrupted"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


def uninterrupted(work: Callable[_P, Coroutine[Any, Any, _T]]) -> Callable[_P, Coroutine[Any, Any, _T]]:
    """Let what is begun be finished: a caller that is cancelled gives up when the work is done.

    For what is kept both in memory and in a database, which goes on with a transaction whoever waits for it.
    """

    @functools.wraps(work)
    async def run(*arguments: _P.args, **options: _P.kwargs) -> _T:
        running = asyncio.ensure_future(work(*arguments, **options))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await asyncio.wait([running])
            raise

    return run
