from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RangeEpoch(_message.Message):
    __slots__ = ("conf_ver", "version")
    CONF_VER_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    conf_ver: int
    version: int
    def __init__(self, conf_ver: _Optional[int] = ..., version: _Optional[int] = ...) -> None: ...

class Peer(_message.Message):
    __slots__ = ("id", "node_id")
    ID_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    id: int
    node_id: int
    def __init__(self, id: _Optional[int] = ..., node_id: _Optional[int] = ...) -> None: ...

class ColumnInfo(_message.Message):
    __slots__ = ("id", "name", "kind")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    id: int
    name: str
    kind: str
    def __init__(self, id: _Optional[int] = ..., name: _Optional[str] = ..., kind: _Optional[str] = ...) -> None: ...

class KeySchema(_message.Message):
    __slots__ = ("key_cols",)
    KEY_COLS_FIELD_NUMBER: _ClassVar[int]
    key_cols: _containers.RepeatedCompositeFieldContainer[ColumnInfo]
    def __init__(self, key_cols: _Optional[_Iterable[_Union[ColumnInfo, _Mapping]]] = ...) -> None: ...

class Range(_message.Message):
    __slots__ = ("id", "start_key", "end_key", "range_epoch", "db_id", "table_id", "key_schema")
    ID_FIELD_NUMBER: _ClassVar[int]
    START_KEY_FIELD_NUMBER: _ClassVar[int]
    END_KEY_FIELD_NUMBER: _ClassVar[int]
    RANGE_EPOCH_FIELD_NUMBER: _ClassVar[int]
    DB_ID_FIELD_NUMBER: _ClassVar[int]
    TABLE_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    id: int
    start_key: bytes
    end_key: bytes
    range_epoch: RangeEpoch
    db_id: int
    table_id: int
    key_schema: KeySchema
    def __init__(self, id: _Optional[int] = ..., start_key: _Optional[bytes] = ..., end_key: _Optional[bytes] = ..., range_epoch: _Optional[_Union[RangeEpoch, _Mapping]] = ..., db_id: _Optional[int] = ..., table_id: _Optional[int] = ..., key_schema: _Optional[_Union[KeySchema, _Mapping]] = ...) -> None: ...
