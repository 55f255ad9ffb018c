"""`coordinode.v1.replication.ChangeStreamService`: the commits of a shard as a stream of events, as in CoordiNode."""

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any

from msgspec import Struct

from tailrace.delivery.grpc.call import GrpcCall, Method, Service, StatusError
from tailrace.delivery.grpc.proto import coordinode_cdc_pb2 as proto
from tailrace.delivery.grpc.protobuf import decoded, encoded
from tailrace.interface.coordinode.consumers import Consumers
from tailrace.interface.coordinode.cursor import CommitCursor
from tailrace.interface.coordinode.merge import send_merged
from tailrace.interface.coordinode.meter import Meter
from tailrace.interface.coordinode.operation import Mapper
from tailrace.interface.coordinode.options import ChangeStreamOptions
from tailrace.interface.coordinode.place import find_place, find_places
from tailrace.interface.coordinode.problem import stream_status
from tailrace.interface.coordinode.request import (
    MERGE_HEADER,
    SHARD_HEADER,
    check_consumer_id,
    is_merged,
    retention_of,
    selection_of,
    shard_of,
    shards_for,
    start_token,
)
from tailrace.interface.coordinode.shard import StreamShard
from tailrace.interface.coordinode.token import ResumeToken, index_of, token_of
from tailrace.interface.coordinode.window import Placing, Windows
from tailrace.meta.consumer_store import Consumer
from tailrace.model.errors import (
    BehindHorizonError,
    BeyondHeadError,
    CaptureDisabledError,
    CommitsLostError,
    InvalidRequestError,
    TailraceError,
)
from tailrace.model.number import Index, Offset
from tailrace.subscription.restrict import Restrictions

__all__ = ["INCARNATION_HEADER", "ChangeStreamTools", "change_stream_service"]


async def send_commits(
    call: GrpcCall, cursor: CommitCursor, options: ChangeStreamOptions, meter: Meter, *, progress_s: float
) -> None:
    """Send what a cursor reads, then what comes. While commits are left out, tell from time to time how far it read.

    Raises:
        CommitsLostError: The client is so slow that retention has overtaken it.
        LogClosedError: The log was closed.
    """
    loop = asyncio.get_running_loop()
    log = cursor.shard.log
    sent_s = loop.time()
    while True:
        reading = await cursor.advance()
        if reading is None:
            if cursor.owes_progress:
                if not await log.wait(cursor.after, progress_s):
                    await call.write(cursor.progress())
            else:
                await log.wait(cursor.after, options.wait_s_max)
            continue
        idle = True
        for piece in reading.pieces(options.write_bytes_max):
            idle = False
            await call.write(piece)
            meter.sent(piece)
        if not idle:
            sent_s = loop.time()
        elif cursor.owes_progress and loop.time() - sent_s > progress_s:
            sent_s = loop.time()
            await call.write(cursor.progress())
        await asyncio.sleep(0)


INCARNATION_HEADER = "x-coordinode-consumer-incarnation"
"""Initial metadata of a consumer's stream."""


class ChangeStreamTools(Struct, frozen=True):
    """What all calls share."""

    shards: Mapping[int, StreamShard]
    consumers: Consumers
    restrictions: Restrictions
    meter: Meter
    options: ChangeStreamOptions


def change_stream_service(tools: ChangeStreamTools) -> Service:
    """Return the service."""
    handlers = _Handlers(tools)
    return Service(
        "coordinode.v1.replication.ChangeStreamService",
        {
            "Subscribe": Method(stream=handlers.subscribe, counted=True),
            "AcknowledgeSubscription": Method(unary=handlers.acknowledge),
            "CancelSubscription": Method(unary=handlers.cancel),
        },
        proto.DESCRIPTOR.name,
    )


class _Shared(Struct, frozen=True):
    """What all streams of a shard share, so that they share events, too."""

    own: Placing
    merged: Placing
    mapper: Mapper


class _Handlers:
    """The methods."""

    def __init__(self, tools: ChangeStreamTools) -> None:
        self._tools = tools
        self._windows = Windows(tools.options.encoded_bytes_max)
        self._shared = {
            number: _Shared(
                Placing(shard, tools.options.event_bytes_max, merged=False),
                Placing(shard, tools.options.event_bytes_max, merged=True),
                Mapper(number, shard.edges),
            )
            for number, shard in tools.shards.items()
        }

    async def subscribe(self, call: GrpcCall, message: bytes) -> None:
        """Stream commits until the client goes or its consumer ends."""
        await self._with_status(self._subscribe(call, decoded(proto.SubscribeRequest, message)))

    async def acknowledge(self, call: GrpcCall, message: bytes) -> bytes:
        """Move the checkpoint of a consumer."""
        await self._with_status(self._acknowledge(call, decoded(proto.AcknowledgeSubscriptionRequest, message)))
        return encoded(proto.AcknowledgeSubscriptionResponse())

    async def cancel(self, call: GrpcCall, message: bytes) -> bytes:
        """End a consumer and its streams."""
        await self._with_status(self._cancel(call, decoded(proto.CancelSubscriptionRequest, message)))
        return encoded(proto.CancelSubscriptionResponse())

    async def _with_status(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something; an error becomes the status that CoordiNode's clients know."""
        try:
            await work
        except TailraceError as error:
            if isinstance(error, CommitsLostError):
                self._tools.meter.lost.inc()
            status = stream_status(error)
            raise StatusError(status.code, status.message, status.trailing) from error

    async def _subscribe(self, call: GrpcCall, request: proto.SubscribeRequest) -> None:
        if not self._tools.options.capture_enabled:
            raise CaptureDisabledError
        token = start_token(request)
        with self._tools.meter.streams.track_inprogress():
            if is_merged(call.header(MERGE_HEADER), token):
                await self._merged(call, request, token)
                return
            if request.consumer_id:
                await self._of_consumer(call, request, token)
                return
            if request.incarnation or request.HasField("retention"):
                raise InvalidRequestError("consumer_id is required to register or resume a consumer")
            shard = shard_of(call.header(SHARD_HEADER), token, self._tools.shards, call.principal)
            following, after = await find_place(shard, token)
            cursor = self._cursor(call, request, shard, following, after)
            call.begin(((SHARD_HEADER, str(shard.number)),))
            await self._send(call, cursor, self._tools.options.progress_s)

    async def _merged(self, call: GrpcCall, request: proto.SubscribeRequest, token: ResumeToken | None) -> None:
        if request.consumer_id or request.incarnation or request.HasField("retention"):
            raise InvalidRequestError("a merged stream has no consumer: leave out consumer_id and keep its token")
        shards = shards_for(call.principal, self._tools.shards)
        places = await find_places(shards, token)
        cursors = [
            self._cursor(call, request, shard, *place, merged=True) for shard, place in zip(shards, places, strict=True)
        ]
        call.begin(((MERGE_HEADER, "all"),))
        await send_merged(call, cursors, self._tools.options, self._tools.meter)

    async def _of_consumer(self, call: GrpcCall, request: proto.SubscribeRequest, token: ResumeToken | None) -> None:
        """Stream to a registered consumer, which is made first where the request says so."""
        check_consumer_id(request.consumer_id)
        consumers, principal = self._tools.consumers, call.principal
        if request.incarnation:
            consumer = consumers.find(request.consumer_id, request.incarnation, principal)
            shard = consumers.shard_of(consumer)
            principal.require_namespace(shard.source)
            if token is None:
                token = ResumeToken(shard.number, consumer.checkpoint + 1, 0)
            following, after = await find_place(shard, token)
        else:
            shard = shard_of(call.header(SHARD_HEADER), token, self._tools.shards, principal)
            retention = retention_of(request.retention)
            selection_of(request.filters, restricted=False)
            following, after = await find_place(shard, token)
            try:
                consumer = await consumers.register(request.consumer_id, principal, shard, following, retention)
            except BehindHorizonError as error:
                first = await shard.log.commits.first_index()
                raise CommitsLostError(requested=following, first=first) from error
        cursor = self._cursor(call, request, shard, following, after)
        headers = ((INCARNATION_HEADER, str(consumer.incarnation)), (SHARD_HEADER, str(shard.number)))
        await self._send_attached(call, cursor, consumer, headers)

    async def _send_attached(
        self, call: GrpcCall, cursor: CommitCursor, consumer: Consumer, headers: tuple[tuple[str, str], ...]
    ) -> None:
        """Send until the client goes or the consumer ends, whichever comes first."""
        with self._tools.consumers.attach(consumer) as attachment:
            call.begin(headers)
            sending = asyncio.ensure_future(self._send(call, cursor, self._tools.options.consumer_progress_s))
            ending = asyncio.ensure_future(attachment.wait_ended())
            try:
                await asyncio.wait({sending, ending}, return_when=asyncio.FIRST_COMPLETED)
                if ending.done():
                    raise ending.result()
                sending.result()
            finally:
                sending.cancel()
                ending.cancel()
                await asyncio.gather(sending, ending, return_exceptions=True)

    async def _send(self, call: GrpcCall, cursor: CommitCursor, progress_s: float) -> None:
        await send_commits(call, cursor, self._tools.options, self._tools.meter, progress_s=progress_s)

    def _cursor(
        self,
        call: GrpcCall,
        request: proto.SubscribeRequest,
        shard: StreamShard,
        following: Index,
        after: Offset,
        *,
        merged: bool = False,
    ) -> CommitCursor:
        restriction = self._tools.restrictions.get(call.principal, shard.source)
        selection = selection_of(request.filters, restricted=restriction is not None)
        shared = self._shared[shard.number]
        placing = shared.merged if merged else shared.own
        return CommitCursor(placing, shared.mapper, self._windows, selection, restriction, following, after)

    async def _acknowledge(self, call: GrpcCall, request: proto.AcknowledgeSubscriptionRequest) -> None:
        check_consumer_id(request.consumer_id)
        if not request.incarnation:
            raise InvalidRequestError("incarnation is required")
        if not request.HasField("position"):
            raise InvalidRequestError("position is required")
        consumer = self._tools.consumers.find(request.consumer_id, request.incarnation, call.principal)
        following = index_of(token_of(request.position), consumer.shard)
        try:
            await self._tools.consumers.acknowledge(consumer.id, request.incarnation, call.principal, following)
        except BeyondHeadError as error:
            raise InvalidRequestError(
                f"position names commit {error.requested}, which is past the newest commit {error.head}"
            ) from error

    async def _cancel(self, call: GrpcCall, request: proto.CancelSubscriptionRequest) -> None:
        check_consumer_id(request.consumer_id)
        if not request.incarnation:
            raise InvalidRequestError("incarnation is required")
        await self._tools.consumers.cancel(request.consumer_id, request.incarnation, call.principal)
