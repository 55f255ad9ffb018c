"""Listening to the client of a WebSocket and answering it, one command after the other."""

import msgspec
from msgspec import Struct
from starlette.types import Receive

from tailrace.delivery.problem import problem_of
from tailrace.interface.skeindb.command import Ack, Command, Pause, Resume, Subscribe, Unsubscribe, decode_command
from tailrace.interface.skeindb.framing import WsFraming, WsManyFraming
from tailrace.interface.skeindb.message import AckParams, PauseParams
from tailrace.interface.skeindb.methods import Methods
from tailrace.interface.skeindb.session import Session
from tailrace.model.errors import InvalidRequestError, TailraceError
from tailrace.model.subscription import SubscriptionId
from tailrace.model.subscription_name import parse_sub_id, sub_id_of

__all__ = ["Answering"]


class Answering:
    """Carries out the commands of one connection. `subscription_id` is the one it is about; None on one of many."""

    def __init__(
        self,
        methods: Methods,
        session: Session,
        framing: WsFraming | WsManyFraming,
        subscription_id: SubscriptionId | None,
    ) -> None:
        self._methods = methods
        self._session = session
        self._framing = framing
        self._subscription_id = subscription_id

    async def listen(self, receive: Receive) -> None:
        """Answer commands until the client has gone."""
        try:
            while (message := await receive())["type"] != "websocket.disconnect":
                await self._answer(message.get("text"))
        except OSError:
            return  # the client left while it was answered

    async def _answer(self, text: str | None) -> None:
        subscription_id = self._subscription_id
        try:
            self._methods.count()
            command = decode_command(text)
            subscription_id = self._named(command)
            event, result = await self.carry_out(command, subscription_id)
        except TailraceError as error:
            event, result = "error", problem_of(error)
        await self._session.say(self._framing.answer(subscription_id, event, msgspec.json.encode(result)))

    def _named(self, command: Command) -> SubscriptionId:
        """Return the subscription that a command is for."""
        if command.sub_id is None:
            if self._subscription_id is None:
                raise InvalidRequestError("not a command: Object missing required field `sub_id`")
            return self._subscription_id
        named = parse_sub_id(command.sub_id)
        if self._subscription_id is not None and self._subscription_id != named:
            raise InvalidRequestError(f"this connection is for {sub_id_of(self._subscription_id)} alone")
        return named

    async def carry_out(self, command: Command, subscription_id: SubscriptionId) -> tuple[str, Struct]:
        """Carry out a command; return the name and the data of the answer."""
        sub_id = sub_id_of(subscription_id)
        match command:
            case Ack(offset=offset):
                return "ack", await self._methods.table["cdc.ack"].call(AckParams(sub_id, offset))
            case Pause():
                return "pause", await self._methods.table["cdc.pause"].call(PauseParams(sub_id))
            case Resume():
                return "resume", await self._methods.table["cdc.resume"].call(PauseParams(sub_id))
            case Subscribe() | Unsubscribe():
                raise InvalidRequestError("this connection is for one subscription: use /api/v1/cdc/ws for many")
