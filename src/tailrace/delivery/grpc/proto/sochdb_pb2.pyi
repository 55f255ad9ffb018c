from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class OperationType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OPERATION_UNSPECIFIED: _ClassVar[OperationType]
    OPERATION_INSERT: _ClassVar[OperationType]
    OPERATION_UPDATE: _ClassVar[OperationType]
    OPERATION_DELETE: _ClassVar[OperationType]
    OPERATION_SCHEMA_CHANGE: _ClassVar[OperationType]
OPERATION_UNSPECIFIED: OperationType
OPERATION_INSERT: OperationType
OPERATION_UPDATE: OperationType
OPERATION_DELETE: OperationType
OPERATION_SCHEMA_CHANGE: OperationType

class SubscribeRequest(_message.Message):
    __slots__ = ("namespace", "tables", "operations", "start_sequence", "where_predicate", "batch_size")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    OPERATIONS_FIELD_NUMBER: _ClassVar[int]
    START_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    WHERE_PREDICATE_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    tables: _containers.RepeatedScalarFieldContainer[str]
    operations: _containers.RepeatedScalarFieldContainer[OperationType]
    start_sequence: int
    where_predicate: str
    batch_size: int
    def __init__(self, namespace: _Optional[str] = ..., tables: _Optional[_Iterable[str]] = ..., operations: _Optional[_Iterable[_Union[OperationType, str]]] = ..., start_sequence: _Optional[int] = ..., where_predicate: _Optional[str] = ..., batch_size: _Optional[int] = ...) -> None: ...

class SubscribeEvent(_message.Message):
    __slots__ = ("sequence", "timestamp_us", "txn_id", "table", "key", "operation", "after_value", "before_value", "ddl")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_US_FIELD_NUMBER: _ClassVar[int]
    TXN_ID_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    AFTER_VALUE_FIELD_NUMBER: _ClassVar[int]
    BEFORE_VALUE_FIELD_NUMBER: _ClassVar[int]
    DDL_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    timestamp_us: int
    txn_id: int
    table: str
    key: bytes
    operation: OperationType
    after_value: bytes
    before_value: bytes
    ddl: str
    def __init__(self, sequence: _Optional[int] = ..., timestamp_us: _Optional[int] = ..., txn_id: _Optional[int] = ..., table: _Optional[str] = ..., key: _Optional[bytes] = ..., operation: _Optional[_Union[OperationType, str]] = ..., after_value: _Optional[bytes] = ..., before_value: _Optional[bytes] = ..., ddl: _Optional[str] = ...) -> None: ...

class WatchKeyRequest(_message.Message):
    __slots__ = ("namespace", "table", "key")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    table: str
    key: bytes
    def __init__(self, namespace: _Optional[str] = ..., table: _Optional[str] = ..., key: _Optional[bytes] = ...) -> None: ...

class WatchKeyEvent(_message.Message):
    __slots__ = ("sequence", "timestamp_us", "operation", "after_value", "before_value")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_US_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    AFTER_VALUE_FIELD_NUMBER: _ClassVar[int]
    BEFORE_VALUE_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    timestamp_us: int
    operation: OperationType
    after_value: bytes
    before_value: bytes
    def __init__(self, sequence: _Optional[int] = ..., timestamp_us: _Optional[int] = ..., operation: _Optional[_Union[OperationType, str]] = ..., after_value: _Optional[bytes] = ..., before_value: _Optional[bytes] = ...) -> None: ...

class ListSubscriptionsRequest(_message.Message):
    __slots__ = ("namespace",)
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    def __init__(self, namespace: _Optional[str] = ...) -> None: ...

class ListSubscriptionsResponse(_message.Message):
    __slots__ = ("subscriptions",)
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    subscriptions: _containers.RepeatedCompositeFieldContainer[SubscriptionInfo]
    def __init__(self, subscriptions: _Optional[_Iterable[_Union[SubscriptionInfo, _Mapping]]] = ...) -> None: ...

class SubscriptionInfo(_message.Message):
    __slots__ = ("subscription_id", "namespace", "tables", "start_sequence", "current_sequence", "created_at_us")
    SUBSCRIPTION_ID_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    START_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    CURRENT_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_US_FIELD_NUMBER: _ClassVar[int]
    subscription_id: str
    namespace: str
    tables: _containers.RepeatedScalarFieldContainer[str]
    start_sequence: int
    current_sequence: int
    created_at_us: int
    def __init__(self, subscription_id: _Optional[str] = ..., namespace: _Optional[str] = ..., tables: _Optional[_Iterable[str]] = ..., start_sequence: _Optional[int] = ..., current_sequence: _Optional[int] = ..., created_at_us: _Optional[int] = ...) -> None: ...

class CancelSubscriptionRequest(_message.Message):
    __slots__ = ("subscription_id",)
    SUBSCRIPTION_ID_FIELD_NUMBER: _ClassVar[int]
    subscription_id: str
    def __init__(self, subscription_id: _Optional[str] = ...) -> None: ...

class CancelSubscriptionResponse(_message.Message):
    __slots__ = ("success", "error")
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    success: bool
    error: str
    def __init__(self, success: _Optional[bool] = ..., error: _Optional[str] = ...) -> None: ...

class KvGetRequest(_message.Message):
    __slots__ = ("namespace", "key")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    key: bytes
    def __init__(self, namespace: _Optional[str] = ..., key: _Optional[bytes] = ...) -> None: ...

class KvGetResponse(_message.Message):
    __slots__ = ("value", "found", "error")
    VALUE_FIELD_NUMBER: _ClassVar[int]
    FOUND_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    value: bytes
    found: bool
    error: str
    def __init__(self, value: _Optional[bytes] = ..., found: _Optional[bool] = ..., error: _Optional[str] = ...) -> None: ...

class KvPutRequest(_message.Message):
    __slots__ = ("namespace", "key", "value", "ttl_seconds")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    TTL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    key: bytes
    value: bytes
    ttl_seconds: int
    def __init__(self, namespace: _Optional[str] = ..., key: _Optional[bytes] = ..., value: _Optional[bytes] = ..., ttl_seconds: _Optional[int] = ...) -> None: ...

class KvPutResponse(_message.Message):
    __slots__ = ("success", "error")
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    success: bool
    error: str
    def __init__(self, success: _Optional[bool] = ..., error: _Optional[str] = ...) -> None: ...

class KvDeleteRequest(_message.Message):
    __slots__ = ("namespace", "key")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    key: bytes
    def __init__(self, namespace: _Optional[str] = ..., key: _Optional[bytes] = ...) -> None: ...

class KvDeleteResponse(_message.Message):
    __slots__ = ("success", "error")
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    success: bool
    error: str
    def __init__(self, success: _Optional[bool] = ..., error: _Optional[str] = ...) -> None: ...

class KvScanRequest(_message.Message):
    __slots__ = ("namespace", "prefix", "limit")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    prefix: bytes
    limit: int
    def __init__(self, namespace: _Optional[str] = ..., prefix: _Optional[bytes] = ..., limit: _Optional[int] = ...) -> None: ...

class KvScanResponse(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    value: bytes
    def __init__(self, key: _Optional[bytes] = ..., value: _Optional[bytes] = ...) -> None: ...

class KvBatchGetRequest(_message.Message):
    __slots__ = ("namespace", "keys")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    keys: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, namespace: _Optional[str] = ..., keys: _Optional[_Iterable[bytes]] = ...) -> None: ...

class KvBatchGetResponse(_message.Message):
    __slots__ = ("entries",)
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[KvEntry]
    def __init__(self, entries: _Optional[_Iterable[_Union[KvEntry, _Mapping]]] = ...) -> None: ...

class KvEntry(_message.Message):
    __slots__ = ("key", "value", "found")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    FOUND_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    value: bytes
    found: bool
    def __init__(self, key: _Optional[bytes] = ..., value: _Optional[bytes] = ..., found: _Optional[bool] = ...) -> None: ...

class KvBatchPutRequest(_message.Message):
    __slots__ = ("namespace", "entries")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    entries: _containers.RepeatedCompositeFieldContainer[KvPutEntry]
    def __init__(self, namespace: _Optional[str] = ..., entries: _Optional[_Iterable[_Union[KvPutEntry, _Mapping]]] = ...) -> None: ...

class KvPutEntry(_message.Message):
    __slots__ = ("key", "value", "ttl_seconds")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    TTL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    value: bytes
    ttl_seconds: int
    def __init__(self, key: _Optional[bytes] = ..., value: _Optional[bytes] = ..., ttl_seconds: _Optional[int] = ...) -> None: ...

class KvBatchPutResponse(_message.Message):
    __slots__ = ("success_count", "error")
    SUCCESS_COUNT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    success_count: int
    error: str
    def __init__(self, success_count: _Optional[int] = ..., error: _Optional[str] = ...) -> None: ...
