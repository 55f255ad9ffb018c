"""The events of a WebSocket gateway's connection: the feeds of its subscribe requests, which take turns at writing."""

from tailrace.delivery.encoded import Piece
from tailrace.delivery.frame import frame_of
from tailrace.delivery.grpc.status import status_of
from tailrace.delivery.http.streaming import StreamTools
from tailrace.delivery.sender import Sender, Sending, SendLimits, Write
from tailrace.delivery.view import View
from tailrace.interface.sochdb.gateway_event import GATEWAY
from tailrace.interface.sochdb.gateway_message import event_front
from tailrace.model.errors import TailraceError, UnknownSubscriptionError
from tailrace.model.subscription import Format, Include
from tailrace.subscription.feed import Feed

__all__ = ["GatewayEvents", "GatewaySession", "message_of"]

_VIEW = View(GATEWAY, Format.PLAIN_JSON, Include(before=True, after=True))


class GatewaySession(Sender):
    """Writes to one connection: answers, and events of many feeds; see `Sender`."""

    def __init__(self, tools: StreamTools, write: Write) -> None:
        super().__init__(tools, write)
        self._tools = tools
        self._limits = SendLimits(tools.options.stream_changes_max, tools.options.stream_bytes_max)

    async def answer(self, text: bytes) -> None:
        """Send one message."""
        await self.say(frame_of(text))

    async def serve(self, request_id: str, feed: Feed) -> TailraceError:
        """Send the events of a feed until it ends; return why it did."""
        return await self.send(GatewayEvents(self._tools, feed, self._limits, event_front(request_id)))


class GatewayEvents(Sending):
    """The events of one feed, each in a frame of its own, with the id of their request."""

    def __init__(self, tools: StreamTools, feed: Feed, limits: SendLimits, front: bytes) -> None:
        super().__init__(tools, feed, _VIEW, limits, auto_ack=feed.subscription.auto_ack)
        self._front = front

    def frame(self, piece: Piece) -> bytes:
        """Return events as frames."""
        return b"".join([frame_of(b"%s%s}" % (self._front, event)) for event in piece.data.split(b"\n")[:-1]])


def message_of(error: TailraceError) -> str:
    """Return an error message for a client, in SochDB's words."""
    if isinstance(error, UnknownSubscriptionError):
        return "the subscription was cancelled"
    return status_of(error).message
