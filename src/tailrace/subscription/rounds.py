"""Looking at regular intervals after those for whom a log is kept."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from tailrace.model.errors import LogClosedError, LogError, MetadataError

__all__ = ["go_rounds"]

logger = logging.getLogger(__name__)


async def go_rounds(look: Callable[[], Awaitable[None]], whom: str, interval_s: float) -> None:
    """Call `look` again and again, until cancelled or the log is closed.

    Where log or metadata fail, a warning tells `whom` it is about, and the next round tries again.
    """
    while True:
        await asyncio.sleep(interval_s)
        try:
            await look()
        except LogClosedError:
            return
        except (LogError, MetadataError) as error:
            logger.warning("%s cannot be looked at now", whom, extra={"problem": str(error)})
