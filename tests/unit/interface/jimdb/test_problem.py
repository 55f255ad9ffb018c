"""Errors as pullers are told of them: a table of all."""

import pytest

from tailrace.delivery.grpc.call import StatusCode, StatusError
from tailrace.delivery.grpc.proto import jimdb_cdc_pb2 as proto
from tailrace.delivery.grpc.proto import status_pb2
from tailrace.interface.jimdb import errors as range_errors
from tailrace.interface.jimdb.errors import (
    ClusterMismatchError,
    NotRegisteredError,
    OutOfBoundError,
    PullerBusyError,
    RegistrationsFullError,
    StaleEpochError,
    UnknownRangeError,
)
from tailrace.interface.jimdb.problem import cdc_error, cdc_status, with_details
from tailrace.interface.jimdb.service import range_message
from tailrace.meta.key_range import Epoch, KeyRange
from tailrace.model.errors import (
    BehindHorizonError,
    BeyondHeadError,
    CaptureDisabledError,
    CorruptSegmentError,
    InvalidRequestError,
    LogClosedError,
    MetadataError,
    PermissionDeniedError,
    PipelineExistsError,
    SourceUnavailableError,
    UnauthenticatedError,
    UnknownTableError,
)
from tailrace.model.table import Column, Kind, TableName, TableSchema

SCHEMA = TableSchema(TableName("s", "t"), 1, (Column("n"), Column("id", Kind.I64)), ("id",))
ONE = KeyRange(4, 2, b"\0\0\0\2", b"\0\0\0\3", Epoch(1, 3))
TWO = KeyRange(9, 2, b"\0\0\0\2x", b"\0\0\0\3", Epoch(1, 3))
INTERNAL = "internal error: see the log of the server"


def shown(one):
    return range_message(one, 1, SCHEMA)


TOLD = [
    (
        ClusterMismatchError(requested=3, actual=0),
        proto.CDCError(cluster_mismatch=proto.ClusterMismatch(request_cluster=3, actual_cluster=0)),
        StatusCode.FAILED_PRECONDITION,
    ),
    (UnknownRangeError(7), proto.CDCError(range_not_found=proto.RangeNotFound(range_id=7)), StatusCode.NOT_FOUND),
    (
        OutOfBoundError(b"k", ONE),
        proto.CDCError(out_of_bound=proto.OutOfBound(key=b"k", range_id=4, range_start=ONE.start, range_limit=ONE.end)),
        StatusCode.OUT_OF_RANGE,
    ),
    (
        StaleEpochError(ONE, TWO),
        proto.CDCError(stale_epoch=proto.StaleEpoch(old_range=shown(ONE), new_range=shown(TWO))),
        StatusCode.ABORTED,
    ),
    (
        StaleEpochError(TWO, None),
        proto.CDCError(stale_epoch=proto.StaleEpoch(old_range=shown(TWO))),
        StatusCode.ABORTED,
    ),
    (
        NotRegisteredError(4, "a"),
        proto.CDCError(not_registered=proto.NotRegistered(range_id=4, subscriber_name="a")),
        StatusCode.FAILED_PRECONDITION,
    ),
    (
        PullerBusyError(4, "a"),
        proto.CDCError(busy=proto.Busy(range_id=4, subscriber_name="a")),
        StatusCode.ABORTED,
    ),
    (
        BehindHorizonError(requested=3, horizon=8),
        proto.CDCError(log_lost=proto.LogLost(requested_index=3, oldest_index=8)),
        StatusCode.OUT_OF_RANGE,
    ),
    (
        BeyondHeadError(requested=9, head=8),
        proto.CDCError(raft_fail=proto.RaftFail(reason="offset 9 is beyond the newest change 8")),
        StatusCode.OUT_OF_RANGE,
    ),
    (
        CorruptSegmentError("x", place=3, reason="y"),
        proto.CDCError(raft_fail=proto.RaftFail(reason=INTERNAL)),
        StatusCode.INTERNAL,
    ),
    (MetadataError("secret"), proto.CDCError(server_error=proto.ServerError(msg=INTERNAL)), StatusCode.INTERNAL),
    (InvalidRequestError("x"), proto.CDCError(server_error=proto.ServerError(msg="x")), StatusCode.INVALID_ARGUMENT),
    (SourceUnavailableError("x"), proto.CDCError(server_error=proto.ServerError(msg="x")), StatusCode.UNAVAILABLE),
    (
        RegistrationsFullError("x"),
        proto.CDCError(server_error=proto.ServerError(msg="x")),
        StatusCode.RESOURCE_EXHAUSTED,
    ),
    (
        UnknownTableError("s", "t"),
        proto.CDCError(server_error=proto.ServerError(msg="table s.t not found")),
        StatusCode.NOT_FOUND,
    ),
]


@pytest.mark.parametrize(("error", "told", "code"), TOLD, ids=lambda one: type(one).__name__)
def test_each_error_has_its_member_its_status_and_words(error, told, code):
    found = cdc_error(error, shown)
    assert found.detail
    told.detail = found.detail
    assert found == told
    status = cdc_status(error)
    assert (status.code, status.message) == (code, found.detail)
    (*_, (name, details)) = with_details(status, found).trailing
    whole = status_pb2.Status.FromString(details)
    assert (name, whole.code) == ("grpc-status-details-bin", code)
    assert proto.CDCError.FromString(whole.details[0].value) == found


def test_the_table_has_all_errors_of_ranges():
    assert {type(error).__name__ for error, _, _ in TOLD} >= set(range_errors.__all__)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UnauthenticatedError(), StatusCode.UNAUTHENTICATED),
        (PermissionDeniedError("no"), StatusCode.PERMISSION_DENIED),
        (LogClosedError("x"), StatusCode.UNAVAILABLE),
        (CaptureDisabledError(), StatusCode.FAILED_PRECONDITION),
    ],
)
def test_what_is_no_matter_of_a_range_is_told_by_status_alone(error, code):
    with pytest.raises(StatusError) as refused:
        cdc_error(error, shown)
    assert refused.value.code is code


def test_a_pipeline_that_is_there_already_has_a_status_of_its_own():
    assert cdc_status(PipelineExistsError("x")).code is StatusCode.ALREADY_EXISTS
