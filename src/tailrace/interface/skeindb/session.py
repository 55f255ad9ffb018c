"""A session: one connection of the HTTP interface and the streams that it carries."""

from tailrace.delivery.http.streaming import Ending, StreamTools, ending_of
from tailrace.delivery.sender import Sender, Write
from tailrace.interface.skeindb.framing import Framing
from tailrace.interface.skeindb.stream import Stream
from tailrace.interface.skeindb.stream_options import USUAL, StreamOptions
from tailrace.subscription.feed import Feed

__all__ = ["Session"]


class Session(Sender):
    """Serves feeds over one connection, each in a task of its own; see `Sender`."""

    def __init__(self, tools: StreamTools, framing: Framing, write: Write, asked: StreamOptions = USUAL) -> None:
        super().__init__(tools, write)
        self._tools = tools
        self._framing = framing
        self._asked = asked

    async def serve(self, feed: Feed) -> Ending:
        """Write the records of a feed until it ends."""
        return ending_of(await self.send(Stream(self._tools, feed, self._framing, self._asked)))
