from tailrace.delivery.grpc.proto import jimdb_base_pb2 as _jimdb_base_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RequestHeader(_message.Message):
    __slots__ = ("cluster_id",)
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    cluster_id: int
    def __init__(self, cluster_id: _Optional[int] = ...) -> None: ...

class CDCError(_message.Message):
    __slots__ = ("cluster_mismatch", "not_leader", "raft_fail", "range_not_found", "out_of_bound", "stale_epoch", "no_left_space", "server_error", "log_lost", "not_registered", "busy", "detail")
    CLUSTER_MISMATCH_FIELD_NUMBER: _ClassVar[int]
    NOT_LEADER_FIELD_NUMBER: _ClassVar[int]
    RAFT_FAIL_FIELD_NUMBER: _ClassVar[int]
    RANGE_NOT_FOUND_FIELD_NUMBER: _ClassVar[int]
    OUT_OF_BOUND_FIELD_NUMBER: _ClassVar[int]
    STALE_EPOCH_FIELD_NUMBER: _ClassVar[int]
    NO_LEFT_SPACE_FIELD_NUMBER: _ClassVar[int]
    SERVER_ERROR_FIELD_NUMBER: _ClassVar[int]
    LOG_LOST_FIELD_NUMBER: _ClassVar[int]
    NOT_REGISTERED_FIELD_NUMBER: _ClassVar[int]
    BUSY_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    cluster_mismatch: ClusterMismatch
    not_leader: NotLeader
    raft_fail: RaftFail
    range_not_found: RangeNotFound
    out_of_bound: OutOfBound
    stale_epoch: StaleEpoch
    no_left_space: NoLeftSpace
    server_error: ServerError
    log_lost: LogLost
    not_registered: NotRegistered
    busy: Busy
    detail: str
    def __init__(self, cluster_mismatch: _Optional[_Union[ClusterMismatch, _Mapping]] = ..., not_leader: _Optional[_Union[NotLeader, _Mapping]] = ..., raft_fail: _Optional[_Union[RaftFail, _Mapping]] = ..., range_not_found: _Optional[_Union[RangeNotFound, _Mapping]] = ..., out_of_bound: _Optional[_Union[OutOfBound, _Mapping]] = ..., stale_epoch: _Optional[_Union[StaleEpoch, _Mapping]] = ..., no_left_space: _Optional[_Union[NoLeftSpace, _Mapping]] = ..., server_error: _Optional[_Union[ServerError, _Mapping]] = ..., log_lost: _Optional[_Union[LogLost, _Mapping]] = ..., not_registered: _Optional[_Union[NotRegistered, _Mapping]] = ..., busy: _Optional[_Union[Busy, _Mapping]] = ..., detail: _Optional[str] = ...) -> None: ...

class ClusterMismatch(_message.Message):
    __slots__ = ("request_cluster", "actual_cluster")
    REQUEST_CLUSTER_FIELD_NUMBER: _ClassVar[int]
    ACTUAL_CLUSTER_FIELD_NUMBER: _ClassVar[int]
    request_cluster: int
    actual_cluster: int
    def __init__(self, request_cluster: _Optional[int] = ..., actual_cluster: _Optional[int] = ...) -> None: ...

class NotLeader(_message.Message):
    __slots__ = ("range_id", "leader", "term", "epoch")
    RANGE_ID_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    range_id: int
    leader: _jimdb_base_pb2.Peer
    term: int
    epoch: _jimdb_base_pb2.RangeEpoch
    def __init__(self, range_id: _Optional[int] = ..., leader: _Optional[_Union[_jimdb_base_pb2.Peer, _Mapping]] = ..., term: _Optional[int] = ..., epoch: _Optional[_Union[_jimdb_base_pb2.RangeEpoch, _Mapping]] = ...) -> None: ...

class RaftFail(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class RangeNotFound(_message.Message):
    __slots__ = ("range_id",)
    RANGE_ID_FIELD_NUMBER: _ClassVar[int]
    range_id: int
    def __init__(self, range_id: _Optional[int] = ...) -> None: ...

class OutOfBound(_message.Message):
    __slots__ = ("key", "range_id", "range_start", "range_limit")
    KEY_FIELD_NUMBER: _ClassVar[int]
    RANGE_ID_FIELD_NUMBER: _ClassVar[int]
    RANGE_START_FIELD_NUMBER: _ClassVar[int]
    RANGE_LIMIT_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    range_id: int
    range_start: bytes
    range_limit: bytes
    def __init__(self, key: _Optional[bytes] = ..., range_id: _Optional[int] = ..., range_start: _Optional[bytes] = ..., range_limit: _Optional[bytes] = ...) -> None: ...

class StaleEpoch(_message.Message):
    __slots__ = ("old_range", "new_range")
    OLD_RANGE_FIELD_NUMBER: _ClassVar[int]
    NEW_RANGE_FIELD_NUMBER: _ClassVar[int]
    old_range: _jimdb_base_pb2.Range
    new_range: _jimdb_base_pb2.Range
    def __init__(self, old_range: _Optional[_Union[_jimdb_base_pb2.Range, _Mapping]] = ..., new_range: _Optional[_Union[_jimdb_base_pb2.Range, _Mapping]] = ...) -> None: ...

class NoLeftSpace(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ServerError(_message.Message):
    __slots__ = ("msg",)
    MSG_FIELD_NUMBER: _ClassVar[int]
    msg: str
    def __init__(self, msg: _Optional[str] = ...) -> None: ...

class LogLost(_message.Message):
    __slots__ = ("requested_index", "oldest_index")
    REQUESTED_INDEX_FIELD_NUMBER: _ClassVar[int]
    OLDEST_INDEX_FIELD_NUMBER: _ClassVar[int]
    requested_index: int
    oldest_index: int
    def __init__(self, requested_index: _Optional[int] = ..., oldest_index: _Optional[int] = ...) -> None: ...

class NotRegistered(_message.Message):
    __slots__ = ("range_id", "subscriber_name")
    RANGE_ID_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBER_NAME_FIELD_NUMBER: _ClassVar[int]
    range_id: int
    subscriber_name: str
    def __init__(self, range_id: _Optional[int] = ..., subscriber_name: _Optional[str] = ...) -> None: ...

class Busy(_message.Message):
    __slots__ = ("range_id", "subscriber_name")
    RANGE_ID_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBER_NAME_FIELD_NUMBER: _ClassVar[int]
    range_id: int
    subscriber_name: str
    def __init__(self, range_id: _Optional[int] = ..., subscriber_name: _Optional[str] = ...) -> None: ...

class CdcRegisterRequest(_message.Message):
    __slots__ = ("range_id", "range_epoch", "subscriber_name")
    RANGE_ID_FIELD_NUMBER: _ClassVar[int]
    RANGE_EPOCH_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBER_NAME_FIELD_NUMBER: _ClassVar[int]
    range_id: int
    range_epoch: _jimdb_base_pb2.RangeEpoch
    subscriber_name: str
    def __init__(self, range_id: _Optional[int] = ..., range_epoch: _Optional[_Union[_jimdb_base_pb2.RangeEpoch, _Mapping]] = ..., subscriber_name: _Optional[str] = ...) -> None: ...

class CdcRegisterResponse(_message.Message):
    __slots__ = ("init_snapshot_version", "error")
    INIT_SNAPSHOT_VERSION_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    init_snapshot_version: int
    error: CDCError
    def __init__(self, init_snapshot_version: _Optional[int] = ..., error: _Optional[_Union[CDCError, _Mapping]] = ...) -> None: ...

class CdcChangeData(_message.Message):
    __slots__ = ("type", "key", "value")
    class ChangeType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        WRITE: _ClassVar[CdcChangeData.ChangeType]
        DELETE: _ClassVar[CdcChangeData.ChangeType]
    WRITE: CdcChangeData.ChangeType
    DELETE: CdcChangeData.ChangeType
    TYPE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    type: CdcChangeData.ChangeType
    key: bytes
    value: bytes
    def __init__(self, type: _Optional[_Union[CdcChangeData.ChangeType, str]] = ..., key: _Optional[bytes] = ..., value: _Optional[bytes] = ...) -> None: ...

class CdcPullSnapshotRequest(_message.Message):
    __slots__ = ("range_id", "range_epoch", "subscriber_name", "current_snapshot_version", "last_key")
    RANGE_ID_FIELD_NUMBER: _ClassVar[int]
    RANGE_EPOCH_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBER_NAME_FIELD_NUMBER: _ClassVar[int]
    CURRENT_SNAPSHOT_VERSION_FIELD_NUMBER: _ClassVar[int]
    LAST_KEY_FIELD_NUMBER: _ClassVar[int]
    range_id: int
    range_epoch: _jimdb_base_pb2.RangeEpoch
    subscriber_name: str
    current_snapshot_version: int
    last_key: bytes
    def __init__(self, range_id: _Optional[int] = ..., range_epoch: _Optional[_Union[_jimdb_base_pb2.RangeEpoch, _Mapping]] = ..., subscriber_name: _Optional[str] = ..., current_snapshot_version: _Optional[int] = ..., last_key: _Optional[bytes] = ...) -> None: ...

class CdcPullSnapshotResponse(_message.Message):
    __slots__ = ("error", "current_snapshot_version", "snapshot_data", "end")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    CURRENT_SNAPSHOT_VERSION_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_DATA_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    error: CDCError
    current_snapshot_version: int
    snapshot_data: _containers.RepeatedCompositeFieldContainer[CdcChangeData]
    end: bool
    def __init__(self, error: _Optional[_Union[CDCError, _Mapping]] = ..., current_snapshot_version: _Optional[int] = ..., snapshot_data: _Optional[_Iterable[_Union[CdcChangeData, _Mapping]]] = ..., end: _Optional[bool] = ...) -> None: ...

class CdcPullLogRequest(_message.Message):
    __slots__ = ("range_id", "range_epoch", "subscriber_name", "last_log_index")
    RANGE_ID_FIELD_NUMBER: _ClassVar[int]
    RANGE_EPOCH_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBER_NAME_FIELD_NUMBER: _ClassVar[int]
    LAST_LOG_INDEX_FIELD_NUMBER: _ClassVar[int]
    range_id: int
    range_epoch: _jimdb_base_pb2.RangeEpoch
    subscriber_name: str
    last_log_index: int
    def __init__(self, range_id: _Optional[int] = ..., range_epoch: _Optional[_Union[_jimdb_base_pb2.RangeEpoch, _Mapping]] = ..., subscriber_name: _Optional[str] = ..., last_log_index: _Optional[int] = ...) -> None: ...

class CdcPullLogResponse(_message.Message):
    __slots__ = ("error", "log_data", "current_log_index")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    LOG_DATA_FIELD_NUMBER: _ClassVar[int]
    CURRENT_LOG_INDEX_FIELD_NUMBER: _ClassVar[int]
    error: CDCError
    log_data: _containers.RepeatedCompositeFieldContainer[CdcChangeData]
    current_log_index: int
    def __init__(self, error: _Optional[_Union[CDCError, _Mapping]] = ..., log_data: _Optional[_Iterable[_Union[CdcChangeData, _Mapping]]] = ..., current_log_index: _Optional[int] = ...) -> None: ...

class CDCSink(_message.Message):
    __slots__ = ("type", "config")
    class ConfigEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TYPE_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    type: str
    config: _containers.ScalarMap[str, str]
    def __init__(self, type: _Optional[str] = ..., config: _Optional[_Mapping[str, str]] = ...) -> None: ...

class SubscribeCDCRequest(_message.Message):
    __slots__ = ("header", "db_name", "table_name", "subscriber_name", "sink")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    DB_NAME_FIELD_NUMBER: _ClassVar[int]
    TABLE_NAME_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBER_NAME_FIELD_NUMBER: _ClassVar[int]
    SINK_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    db_name: str
    table_name: str
    subscriber_name: str
    sink: CDCSink
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., db_name: _Optional[str] = ..., table_name: _Optional[str] = ..., subscriber_name: _Optional[str] = ..., sink: _Optional[_Union[CDCSink, _Mapping]] = ...) -> None: ...

class SubscribeCDCResponse(_message.Message):
    __slots__ = ("subscriber",)
    SUBSCRIBER_FIELD_NUMBER: _ClassVar[int]
    subscriber: CDCSubscriber
    def __init__(self, subscriber: _Optional[_Union[CDCSubscriber, _Mapping]] = ...) -> None: ...

class CDCSubscriber(_message.Message):
    __slots__ = ("cluster_id", "db_name", "table_name", "subscriber_name", "db_id", "table_id", "sink", "cancel")
    CLUSTER_ID_FIELD_NUMBER: _ClassVar[int]
    DB_NAME_FIELD_NUMBER: _ClassVar[int]
    TABLE_NAME_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBER_NAME_FIELD_NUMBER: _ClassVar[int]
    DB_ID_FIELD_NUMBER: _ClassVar[int]
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    SINK_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    cluster_id: int
    db_name: str
    table_name: str
    subscriber_name: str
    db_id: int
    table_id: int
    sink: CDCSink
    cancel: bool
    def __init__(self, cluster_id: _Optional[int] = ..., db_name: _Optional[str] = ..., table_name: _Optional[str] = ..., subscriber_name: _Optional[str] = ..., db_id: _Optional[int] = ..., table_id: _Optional[int] = ..., sink: _Optional[_Union[CDCSink, _Mapping]] = ..., cancel: _Optional[bool] = ...) -> None: ...

class UnsubscribeCDCRequest(_message.Message):
    __slots__ = ("header", "db_name", "table_name", "subscriber_name")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    DB_NAME_FIELD_NUMBER: _ClassVar[int]
    TABLE_NAME_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBER_NAME_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    db_name: str
    table_name: str
    subscriber_name: str
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., db_name: _Optional[str] = ..., table_name: _Optional[str] = ..., subscriber_name: _Optional[str] = ...) -> None: ...

class UnsubscribeCDCResponse(_message.Message):
    __slots__ = ("subscriber",)
    SUBSCRIBER_FIELD_NUMBER: _ClassVar[int]
    subscriber: CDCSubscriber
    def __init__(self, subscriber: _Optional[_Union[CDCSubscriber, _Mapping]] = ...) -> None: ...

class CdcRangesRequest(_message.Message):
    __slots__ = ("header", "db_name", "table_name")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    DB_NAME_FIELD_NUMBER: _ClassVar[int]
    TABLE_NAME_FIELD_NUMBER: _ClassVar[int]
    header: RequestHeader
    db_name: str
    table_name: str
    def __init__(self, header: _Optional[_Union[RequestHeader, _Mapping]] = ..., db_name: _Optional[str] = ..., table_name: _Optional[str] = ...) -> None: ...

class CdcRangesResponse(_message.Message):
    __slots__ = ("error", "ranges", "columns")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    error: CDCError
    ranges: _containers.RepeatedCompositeFieldContainer[_jimdb_base_pb2.Range]
    columns: _containers.RepeatedCompositeFieldContainer[_jimdb_base_pb2.ColumnInfo]
    def __init__(self, error: _Optional[_Union[CDCError, _Mapping]] = ..., ranges: _Optional[_Iterable[_Union[_jimdb_base_pb2.Range, _Mapping]]] = ..., columns: _Optional[_Iterable[_Union[_jimdb_base_pb2.ColumnInfo, _Mapping]]] = ...) -> None: ...

class CdcSplitRequest(_message.Message):
    __slots__ = ("range_id", "range_epoch", "split_key")
    RANGE_ID_FIELD_NUMBER: _ClassVar[int]
    RANGE_EPOCH_FIELD_NUMBER: _ClassVar[int]
    SPLIT_KEY_FIELD_NUMBER: _ClassVar[int]
    range_id: int
    range_epoch: _jimdb_base_pb2.RangeEpoch
    split_key: bytes
    def __init__(self, range_id: _Optional[int] = ..., range_epoch: _Optional[_Union[_jimdb_base_pb2.RangeEpoch, _Mapping]] = ..., split_key: _Optional[bytes] = ...) -> None: ...

class CdcSplitResponse(_message.Message):
    __slots__ = ("error", "ranges")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    error: CDCError
    ranges: _containers.RepeatedCompositeFieldContainer[_jimdb_base_pb2.Range]
    def __init__(self, error: _Optional[_Union[CDCError, _Mapping]] = ..., ranges: _Optional[_Iterable[_Union[_jimdb_base_pb2.Range, _Mapping]]] = ...) -> None: ...

class CdcUnregisterRequest(_message.Message):
    __slots__ = ("range_id", "range_epoch", "subscriber_name")
    RANGE_ID_FIELD_NUMBER: _ClassVar[int]
    RANGE_EPOCH_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBER_NAME_FIELD_NUMBER: _ClassVar[int]
    range_id: int
    range_epoch: _jimdb_base_pb2.RangeEpoch
    subscriber_name: str
    def __init__(self, range_id: _Optional[int] = ..., range_epoch: _Optional[_Union[_jimdb_base_pb2.RangeEpoch, _Mapping]] = ..., subscriber_name: _Optional[str] = ...) -> None: ...

class CdcUnregisterResponse(_message.Message):
    __slots__ = ("error",)
    ERROR_FIELD_NUMBER: _ClassVar[int]
    error: CDCError
    def __init__(self, error: _Optional[_Union[CDCError, _Mapping]] = ...) -> None: ...
