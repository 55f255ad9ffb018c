"""`dspb.CdcService`, compatible with JimDB: tables pulled range by range, and pipelines by subscription."""

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from msgspec import Struct

from tailrace.access.principal import Capability
from tailrace.delivery.grpc.call import GrpcCall, Method, Service, StatusCode, prefixed
from tailrace.delivery.grpc.proto import jimdb_base_pb2 as base
from tailrace.delivery.grpc.proto import jimdb_cdc_pb2 as proto
from tailrace.delivery.grpc.protobuf import decoded, encoded
from tailrace.interface.jimdb.errors import ClusterMismatchError
from tailrace.interface.jimdb.problem import cdc_error, cdc_status, with_details
from tailrace.interface.jimdb.pull import PullService
from tailrace.interface.jimdb.row import Pulled
from tailrace.interface.jimdb.sink import shown_sink, url_of
from tailrace.interface.jimdb.subscribers import Subscriber, Subscribers
from tailrace.meta.key_range import Epoch, KeyRange
from tailrace.metrics import Metrics
from tailrace.model.errors import TailraceError
from tailrace.model.number import Offset
from tailrace.model.table import Column, Identity, TableSchema

__all__ = ["JimdbTools", "change_messages", "column_messages", "epoch_of", "jimdb_service", "range_message"]

logger = logging.getLogger(__name__)

_WIRE = "jimdb"
_OFFSET_MAX = 2**63 - 1

_Answer = TypeVar("_Answer")


class JimdbTools(Struct, frozen=True):
    """What all calls share."""

    pulls: PullService
    subscribers: Subscribers
    metrics: Metrics
    cluster_id: int = 0


def jimdb_service(tools: JimdbTools) -> Service:
    """Return the service."""
    handlers = _Handlers(tools)
    return Service(
        "dspb.CdcService",
        {
            "CdcRegister": Method(unary=handlers.register),
            "CdcPullSnapshot": Method(unary=handlers.pull_snapshot),
            "CdcPullLog": Method(unary=handlers.pull_log),
            "SubscribeCDC": Method(unary=handlers.subscribe, capability=Capability.ADMIN),
            "UnsubscribeCDC": Method(unary=handlers.unsubscribe, capability=Capability.ADMIN),
            "CdcRanges": Method(unary=handlers.ranges),
            "CdcSplit": Method(unary=handlers.split, capability=Capability.ADMIN),
            "CdcUnregister": Method(unary=handlers.unregister),
        },
        proto.DESCRIPTOR.name,
    )


class _Handlers:
    """The methods. An error in a request is returned in the answer where it has a member for it."""

    def __init__(self, tools: JimdbTools) -> None:
        self._tools = tools
        self._pulls = tools.pulls

    async def register(self, call: GrpcCall, message: bytes) -> bytes:
        """Answer the version at which a puller begins. A failure is a status, with the error in it and before it."""
        request = decoded(proto.CdcRegisterRequest, message)
        epoch, name = epoch_of(request.range_epoch), request.subscriber_name
        try:
            registration = await self._pulls.register(call.principal, request.range_id, epoch, name)
        except TailraceError as error:
            message_error = self._error(error)
            await call.write(prefixed(encoded(proto.CdcRegisterResponse(error=message_error))))
            raise with_details(cdc_status(error), message_error) from error
        return encoded(proto.CdcRegisterResponse(init_snapshot_version=registration.init_version))

    async def unregister(self, call: GrpcCall, message: bytes) -> bytes:
        """Forget a puller."""
        request = decoded(proto.CdcUnregisterRequest, message)
        epoch, name = epoch_of(request.range_epoch), request.subscriber_name
        _, error = await self._answer_or_error(self._pulls.unregister(call.principal, request.range_id, epoch, name))
        return encoded(proto.CdcUnregisterResponse(error=error))

    async def pull_snapshot(self, call: GrpcCall, message: bytes) -> bytes:
        """Answer the rows after a key."""
        request = decoded(proto.CdcPullSnapshotRequest, message)
        epoch, name = epoch_of(request.range_epoch), request.subscriber_name
        version = Offset(min(request.current_snapshot_version, _OFFSET_MAX))
        pulled, error = await self._answer_or_error(
            self._pulls.snapshot(call.principal, request.range_id, epoch, name, version, request.last_key)
        )
        if pulled is None:
            return encoded(proto.CdcPullSnapshotResponse(error=error))
        answer = proto.CdcPullSnapshotResponse(
            current_snapshot_version=pulled.version, snapshot_data=change_messages(pulled.rows), end=pulled.end
        )
        return self._counted(encoded(answer), len(pulled.rows))

    async def pull_log(self, call: GrpcCall, message: bytes) -> bytes:
        """Answer the changes after an index of the log."""
        request = decoded(proto.CdcPullLogRequest, message)
        epoch, name = epoch_of(request.range_epoch), request.subscriber_name
        after = Offset(min(request.last_log_index, _OFFSET_MAX))
        pulled, error = await self._answer_or_error(
            self._pulls.log(call.principal, request.range_id, epoch, name, after)
        )
        if pulled is None:
            return encoded(proto.CdcPullLogResponse(error=error))
        answer = proto.CdcPullLogResponse(log_data=change_messages(pulled.changes), current_log_index=pulled.through)
        return self._counted(encoded(answer), len(pulled.changes))

    async def ranges(self, call: GrpcCall, message: bytes) -> bytes:
        """Answer the ranges of a table, and its columns."""
        request = decoded(proto.CdcRangesRequest, message)

        async def find() -> proto.CdcRangesResponse:
            self._check_cluster(request.header)
            schema, found = await self._pulls.ranges(call.principal, request.db_name, request.table_name)
            columns = column_messages(schema, schema.columns)
            return proto.CdcRangesResponse(ranges=map(self._shown, found), columns=columns)

        answer, error = await self._answer_or_error(find())
        return encoded(answer or proto.CdcRangesResponse(error=error))

    async def split(self, call: GrpcCall, message: bytes) -> bytes:
        """Split a range; answer both halves."""
        request = decoded(proto.CdcSplitRequest, message)
        epoch = epoch_of(request.range_epoch)
        halves, error = await self._answer_or_error(
            self._pulls.split(call.principal, request.range_id, epoch, request.split_key)
        )
        return encoded(proto.CdcSplitResponse(ranges=map(self._shown, halves or ()), error=error))

    async def subscribe(self, call: GrpcCall, message: bytes) -> bytes:
        """Keep a pipeline. Failures are statuses."""
        request = decoded(proto.SubscribeCDCRequest, message)

        async def make() -> Subscriber:
            self._check_cluster(request.header)
            return await self._tools.subscribers.subscribe(
                call.principal, request.db_name, request.table_name, request.subscriber_name, url_of(request.sink)
            )

        created = await self._by_status(make)
        return encoded(proto.SubscribeCDCResponse(subscriber=self._subscriber(created)))

    async def unsubscribe(self, call: GrpcCall, message: bytes) -> bytes:
        """Have a pipeline removed. Failures are statuses."""
        request = decoded(proto.UnsubscribeCDCRequest, message)

        async def end() -> Subscriber:
            self._check_cluster(request.header)
            return await self._tools.subscribers.unsubscribe(
                call.principal, request.db_name, request.table_name, request.subscriber_name
            )

        ended = await self._by_status(end)
        return encoded(proto.UnsubscribeCDCResponse(subscriber=self._subscriber(ended)))

    async def _answer_or_error(self, work: Awaitable[_Answer]) -> tuple[_Answer | None, proto.CDCError | None]:
        """Return what some work gives, or what tells of the error that it raised."""
        try:
            return await work, None
        except TailraceError as error:
            return None, self._error(error)

    async def _by_status(self, work: Callable[[], Awaitable[_Answer]]) -> _Answer:
        """Return what some work gives; an error becomes a status with the error in its details."""
        try:
            return await work()
        except TailraceError as error:
            raise with_details(cdc_status(error), self._error(error)) from error

    def _error(self, error: TailraceError) -> proto.CDCError:
        """Return what tells of an error. One of which the caller learns nothing is in the log of the server."""
        if cdc_status(error).code is StatusCode.INTERNAL:
            logger.error("a call of JimDB failed", exc_info=error)
        return cdc_error(error, self._shown)

    def _shown(self, one: KeyRange) -> base.Range:
        return range_message(one, self._pulls.shard_of(one).number, self._pulls.schema_of(one))

    def _check_cluster(self, header: proto.RequestHeader) -> None:
        if header.cluster_id != self._tools.cluster_id:
            raise ClusterMismatchError(requested=header.cluster_id, actual=self._tools.cluster_id)

    def _counted(self, answer: bytes, changes: int) -> bytes:
        self._tools.metrics.delivered_changes.labels(_WIRE).inc(changes)
        self._tools.metrics.delivered_bytes.labels(_WIRE).inc(len(answer))
        return answer

    def _subscriber(self, one: Subscriber) -> proto.CDCSubscriber:
        numbers = one.numbers
        return proto.CDCSubscriber(
            cluster_id=numbers.cluster_id,
            db_name=one.source,
            table_name=one.table,
            subscriber_name=one.name,
            db_id=numbers.db_id,
            table_id=numbers.table_id,
            sink=shown_sink(one.sink),
            cancel=one.cancelled,
        )


_WRITE, _DELETE = proto.CdcChangeData.WRITE, proto.CdcChangeData.DELETE


def epoch_of(message: base.RangeEpoch) -> Epoch:
    """Return the epoch that a request names; one that names none has none that a range ever had."""
    return Epoch(message.conf_ver, message.version)


def range_message(one: KeyRange, db_id: int, schema: TableSchema) -> base.Range:
    """Return a range."""
    return base.Range(
        id=one.id,
        start_key=one.start,
        end_key=one.end,
        range_epoch=base.RangeEpoch(conf_ver=one.epoch.conf_ver, version=one.epoch.version),
        db_id=db_id,
        table_id=one.table_id,
        key_schema=base.KeySchema(key_cols=column_messages(schema, schema.key_columns)),
    )


def column_messages(schema: TableSchema, columns: Sequence[Column]) -> list[base.ColumnInfo]:
    """Return columns of a table; a hidden row number is column 0."""
    numbers = {column.name: number for number, column in enumerate(schema.columns, 1)}
    if schema.identity is Identity.ROW_NUMBER and columns is not schema.columns:
        numbers = {}  # its name may be that of a column
    return [base.ColumnInfo(id=numbers.get(one.name, 0), name=one.name, kind=str(one.kind)) for one in columns]


def change_messages(pulled: Iterable[Pulled]) -> list[proto.CdcChangeData]:
    """Return rows or changes."""
    return [
        proto.CdcChangeData(type=_DELETE, key=one.key)
        if one.value is None
        else proto.CdcChangeData(type=_WRITE, key=one.key, value=one.value)
        for one in pulled
    ]
