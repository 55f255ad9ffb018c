"""The generated messages are those of the `.proto` files, and the names and numbers of the contracts."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf.descriptor import FieldDescriptor

from tailrace.delivery.grpc.proto import (
    coordinode_cdc_pb2,
    coordinode_health_pb2,
    jimdb_base_pb2,
    jimdb_cdc_pb2,
    sochdb_pb2,
    status_pb2,
)

ROOT = Path(__file__).parents[4]
PROTO = Path("tailrace/delivery/grpc/proto")
SHORT = {
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BYTES: "bytes",
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_UINT32: "uint32",
    FieldDescriptor.TYPE_UINT64: "uint64",
    FieldDescriptor.TYPE_INT32: "int32",
    FieldDescriptor.TYPE_INT64: "int64",
}

SOCHDB = {
    "SubscribeRequest": "1 namespace string · 2 tables repeated string · 3 operations repeated OperationType"
    " · 4 start_sequence uint64 · 5 where_predicate string · 6 batch_size uint32",
    "SubscribeEvent": "1 sequence uint64 · 2 timestamp_us uint64 · 3 txn_id uint64 · 4 table string · 5 key bytes"
    " · 6 operation OperationType · 7 after_value bytes · 8 before_value bytes · 9 ddl string",
    "WatchKeyRequest": "1 namespace string · 2 table string · 3 key bytes",
    "WatchKeyEvent": "1 sequence uint64 · 2 timestamp_us uint64 · 3 operation OperationType · 4 after_value bytes"
    " · 5 before_value bytes",
    "ListSubscriptionsRequest": "1 namespace string",
    "ListSubscriptionsResponse": "1 subscriptions repeated SubscriptionInfo",
    "SubscriptionInfo": "1 subscription_id string · 2 namespace string · 3 tables repeated string"
    " · 4 start_sequence uint64 · 5 current_sequence uint64 · 6 created_at_us uint64",
    "CancelSubscriptionRequest": "1 subscription_id string",
    "CancelSubscriptionResponse": "1 success bool · 2 error string",
    "KvGetRequest": "1 namespace string · 2 key bytes",
    "KvGetResponse": "1 value bytes · 2 found bool · 3 error string",
    "KvPutRequest": "1 namespace string · 2 key bytes · 3 value bytes · 4 ttl_seconds uint64",
    "KvPutResponse": "1 success bool · 2 error string",
    "KvDeleteRequest": "1 namespace string · 2 key bytes",
    "KvDeleteResponse": "1 success bool · 2 error string",
    "KvScanRequest": "1 namespace string · 2 prefix bytes · 3 limit uint32",
    "KvScanResponse": "1 key bytes · 2 value bytes",
    "KvBatchGetRequest": "1 namespace string · 2 keys repeated bytes",
    "KvBatchGetResponse": "1 entries repeated KvEntry",
    "KvEntry": "1 key bytes · 2 value bytes · 3 found bool",
    "KvBatchPutRequest": "1 namespace string · 2 entries repeated KvPutEntry",
    "KvPutEntry": "1 key bytes · 2 value bytes · 3 ttl_seconds uint64",
    "KvBatchPutResponse": "1 success_count uint32 · 2 error string",
}
COORDINODE = {
    "ResumeToken": "1 shard_id uint32 · 2 segment_id uint64 · 3 entry_offset uint64",
    "CdcFilters": "1 edge_types repeated string · 2 is_migration optional bool",
    "SubscribeRequest": "1 resume_token ResumeToken · 2 filters CdcFilters · 3 consumer_id string"
    " · 4 incarnation uint64 · 5 retention ConsumerRetention",
    "ConsumerRetention": "1 strict StrictRetention · 2 bounded BoundedRetention",
    "StrictRetention": "",
    "BoundedRetention": "1 max_progress_lag_ms uint64 · 2 max_retained_bytes uint64"
    " · 3 liveness_timeout_ms optional uint64",
    "AcknowledgeSubscriptionRequest": "1 consumer_id string · 2 incarnation uint64 · 3 position ResumeToken",
    "AcknowledgeSubscriptionResponse": "",
    "CancelSubscriptionRequest": "1 consumer_id string · 2 incarnation uint64",
    "CancelSubscriptionResponse": "",
    "ChangeEvent": "1 ts uint64 · 2 term uint64 · 3 log_index uint64 · 4 shard_id uint32 · 5 is_migration bool"
    " · 6 ops repeated ChangeOp · 7 position ResumeToken",
    "ChangeOp": "1 type ChangeOpType · 2 partition uint32 · 3 key bytes · 4 value bytes · 1001 before bytes",
}
JIMDB_BASE = {
    "RangeEpoch": "1 conf_ver uint64 · 2 version uint64",
    "Peer": "1 id uint64 · 2 node_id uint64",
    "ColumnInfo": "1 id uint32 · 100 name string · 101 kind string",
    "KeySchema": "1 key_cols repeated ColumnInfo",
    "Range": "1 id uint64 · 2 start_key bytes · 3 end_key bytes · 4 range_epoch RangeEpoch · 6 db_id int32"
    " · 7 table_id int32 · 8 key_schema KeySchema",
}
_PULLED = "1 range_id uint64 · 2 range_epoch RangeEpoch · 3 subscriber_name string"
_NAMED = "1 header RequestHeader · 2 db_name string · 3 table_name string"
JIMDB = {
    "RequestHeader": "1 cluster_id uint64",
    "CDCError": "1 cluster_mismatch ClusterMismatch · 2 not_leader NotLeader · 3 raft_fail RaftFail"
    " · 4 range_not_found RangeNotFound · 5 out_of_bound OutOfBound · 6 stale_epoch StaleEpoch"
    " · 7 no_left_space NoLeftSpace · 8 server_error ServerError · 9 log_lost LogLost"
    " · 10 not_registered NotRegistered · 11 busy Busy · 100 detail string",
    "ClusterMismatch": "1 request_cluster uint64 · 2 actual_cluster uint64",
    "NotLeader": "1 range_id uint64 · 2 leader Peer · 3 term uint64 · 4 epoch RangeEpoch",
    "RaftFail": "1 reason string",
    "RangeNotFound": "1 range_id uint64",
    "OutOfBound": "1 key bytes · 2 range_id uint64 · 3 range_start bytes · 4 range_limit bytes",
    "StaleEpoch": "1 old_range Range · 2 new_range Range",
    "NoLeftSpace": "",
    "ServerError": "1 msg string",
    "LogLost": "1 requested_index uint64 · 2 oldest_index uint64",
    "NotRegistered": "1 range_id uint64 · 2 subscriber_name string",
    "Busy": "1 range_id uint64 · 2 subscriber_name string",
    "CdcRegisterRequest": _PULLED,
    "CdcRegisterResponse": "1 init_snapshot_version uint64 · 2 error CDCError",
    "CdcChangeData": "1 type ChangeType · 2 key bytes · 3 value bytes",
    "CdcPullSnapshotRequest": f"{_PULLED} · 4 current_snapshot_version uint64 · 5 last_key bytes",
    "CdcPullSnapshotResponse": "1 error CDCError · 2 current_snapshot_version uint64"
    " · 3 snapshot_data repeated CdcChangeData · 4 end bool",
    "CdcPullLogRequest": f"{_PULLED} · 4 last_log_index uint64",
    "CdcPullLogResponse": "1 error CDCError · 2 log_data repeated CdcChangeData · 3 current_log_index uint64",
    "CDCSink": "1 type string · 2 config repeated ConfigEntry",
    "SubscribeCDCRequest": f"{_NAMED} · 4 subscriber_name string · 5 sink CDCSink",
    "SubscribeCDCResponse": "1 subscriber CDCSubscriber",
    "CDCSubscriber": "1 cluster_id uint64 · 2 db_name string · 3 table_name string · 4 subscriber_name string"
    " · 5 db_id int32 · 6 table_id int32 · 7 sink CDCSink · 8 cancel bool",
    "UnsubscribeCDCRequest": f"{_NAMED} · 4 subscriber_name string",
    "UnsubscribeCDCResponse": "1 subscriber CDCSubscriber",
    "CdcRangesRequest": _NAMED,
    "CdcRangesResponse": "1 error CDCError · 2 ranges repeated Range · 3 columns repeated ColumnInfo",
    "CdcSplitRequest": "1 range_id uint64 · 2 range_epoch RangeEpoch · 3 split_key bytes",
    "CdcSplitResponse": "1 error CDCError · 2 ranges repeated Range",
    "CdcUnregisterRequest": _PULLED,
    "CdcUnregisterResponse": "1 error CDCError",
}


def test_the_committed_code_is_what_the_proto_files_yield(tmp_path):
    subprocess.run(
        [ROOT / "scripts/protos", tmp_path], check=True, env={**os.environ, "PYTHON": sys.executable}, timeout=60
    )
    made = {path.name: path.read_bytes() for path in (tmp_path / PROTO).iterdir()}
    committed = {path.name: path.read_bytes() for path in (ROOT / "src" / PROTO).glob("*_pb2.py*")}
    assert committed == made


@pytest.mark.parametrize(
    ("module", "package", "messages"),
    [
        (sochdb_pb2, "sochdb.v1", SOCHDB),
        (coordinode_cdc_pb2, "coordinode.v1.replication", COORDINODE),
        (
            coordinode_health_pb2,
            "coordinode.v1.health",
            {"HealthCheckRequest": "1 service string", "HealthCheckResponse": "1 status ServingStatus"},
        ),
        (jimdb_base_pb2, "basepb", JIMDB_BASE),
        (jimdb_cdc_pb2, "dspb", JIMDB),
        (
            status_pb2,
            "tailrace.status",
            {
                "Status": "1 code int32 · 2 message string · 3 details repeated Detail",
                "Detail": "1 type_url string · 2 value bytes",
                "ErrorInfo": "1 reason string · 2 domain string · 3 metadata repeated MetadataEntry",
                "RetryInfo": "1 retry_delay Duration",
                "Duration": "1 seconds int64 · 2 nanos int32",
            },
        ),
    ],
)
def test_messages_have_the_fields_of_the_contract(module, package, messages):
    assert module.DESCRIPTOR.package == package
    assert {name: fields(message) for name, message in module.DESCRIPTOR.message_types_by_name.items()} == messages


def test_enums_have_the_values_of_the_contract():
    assert dict(sochdb_pb2.OperationType.items()) == {
        "OPERATION_UNSPECIFIED": 0,
        "OPERATION_INSERT": 1,
        "OPERATION_UPDATE": 2,
        "OPERATION_DELETE": 3,
        "OPERATION_SCHEMA_CHANGE": 4,
    }
    assert dict(coordinode_cdc_pb2.ChangeOpType.items()) == {
        "CHANGE_OP_TYPE_UNSPECIFIED": 0,
        "INSERT": 1,
        "DELETE": 2,
        "MERGE": 3,
        "NOOP": 4,
        "RAFT_ENTRY": 5,
        "RAFT_TRUNCATION": 6,
        "REMOVE_RANGE": 7,
    }


@pytest.mark.parametrize(
    ("service", "methods"),
    [
        (
            sochdb_pb2.DESCRIPTOR.services_by_name["SubscriptionService"],
            "Subscribe SubscribeRequest stream SubscribeEvent, WatchKey WatchKeyRequest stream WatchKeyEvent,"
            " ListSubscriptions ListSubscriptionsRequest ListSubscriptionsResponse,"
            " CancelSubscription CancelSubscriptionRequest CancelSubscriptionResponse",
        ),
        (
            sochdb_pb2.DESCRIPTOR.services_by_name["KvService"],
            "Get KvGetRequest KvGetResponse, Put KvPutRequest KvPutResponse, Delete KvDeleteRequest KvDeleteResponse,"
            " Scan KvScanRequest stream KvScanResponse, BatchGet KvBatchGetRequest KvBatchGetResponse,"
            " BatchPut KvBatchPutRequest KvBatchPutResponse",
        ),
        (
            coordinode_cdc_pb2.DESCRIPTOR.services_by_name["ChangeStreamService"],
            "Subscribe SubscribeRequest stream ChangeEvent,"
            " AcknowledgeSubscription AcknowledgeSubscriptionRequest AcknowledgeSubscriptionResponse,"
            " CancelSubscription CancelSubscriptionRequest CancelSubscriptionResponse",
        ),
        (
            coordinode_health_pb2.DESCRIPTOR.services_by_name["HealthService"],
            "Check HealthCheckRequest HealthCheckResponse",
        ),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_services_have_the_methods_of_the_contract(service, methods):
    assert methods == ", ".join(
        f"{method.name} {method.input_type.name} {'stream ' * method.server_streaming}{method.output_type.name}"
        for method in service.methods
    )


def fields(message):
    return " · ".join(f"{field.number} {field.name} {kind(field)}" for field in message.fields)


def kind(field):
    named = field.message_type or field.enum_type
    label = "repeated " if field.is_repeated else "optional " * (field.has_presence and not named)
    return label + (named.name if named else SHORT[field.type])
