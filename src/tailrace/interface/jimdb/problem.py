"""Errors as JimDB's pullers see them: in the answer, and for CdcRegister by status besides. Pure."""

from collections.abc import Callable

from tailrace.delivery.grpc.call import StatusCode, StatusError
from tailrace.delivery.grpc.proto import jimdb_base_pb2 as base
from tailrace.delivery.grpc.proto import jimdb_cdc_pb2 as proto
from tailrace.delivery.grpc.proto import status_pb2
from tailrace.delivery.grpc.status import status_of
from tailrace.interface.jimdb.errors import (
    ClusterMismatchError,
    NotRegisteredError,
    OutOfBoundError,
    PullerBusyError,
    RegistrationsFullError,
    StaleEpochError,
    UnknownRangeError,
)
from tailrace.meta.key_range import KeyRange
from tailrace.model.errors import (
    AccessError,
    BehindHorizonError,
    BeyondHeadError,
    CaptureDisabledError,
    LogClosedError,
    LogError,
    PipelineExistsError,
    SourceAbilityError,
    TailraceError,
)

__all__ = ["DETAILS", "TYPE_URL", "RangeShower", "cdc_error", "cdc_status", "with_details"]

DETAILS = "grpc-status-details-bin"
TYPE_URL = "type.googleapis.com/dspb.CDCError"

RangeShower = Callable[[KeyRange], base.Range]
"""Returns the message of a range."""

_CODES: dict[type[TailraceError], StatusCode] = {
    StaleEpochError: StatusCode.ABORTED,
    OutOfBoundError: StatusCode.OUT_OF_RANGE,
    ClusterMismatchError: StatusCode.FAILED_PRECONDITION,
    NotRegisteredError: StatusCode.FAILED_PRECONDITION,
    PullerBusyError: StatusCode.ABORTED,
    RegistrationsFullError: StatusCode.RESOURCE_EXHAUSTED,
    PipelineExistsError: StatusCode.ALREADY_EXISTS,
}
"""Codes of errors that are JimDB's own; all others are those of every service."""

_BY_STATUS = (AccessError, LogClosedError, CaptureDisabledError, SourceAbilityError)
"""What is reported by status alone, for every method: it is about the caller or the server, and no range."""


def cdc_status(error: TailraceError) -> StatusError:
    """Return the status that tells of an error."""
    status = status_of(error)
    return StatusError(_CODES[type(error)], str(error)) if type(error) in _CODES else status


def cdc_error(error: TailraceError, shown: RangeShower) -> proto.CDCError:
    """Return what tells a puller of an error.

    Raises:
        StatusError: It is one that is reported by status alone.
    """
    if isinstance(error, _BY_STATUS):
        raise cdc_status(error)
    message = _message_of(error, shown)
    message.detail = cdc_status(error).message
    return message


def with_details(status: StatusError, error: proto.CDCError) -> StatusError:
    """Return a status with an error in its details."""
    detail = status_pb2.Detail(type_url=TYPE_URL, value=error.SerializeToString(deterministic=True))
    whole = status_pb2.Status(code=status.code, message=status.message, details=[detail])
    trailing = [*status.trailing, (DETAILS, whole.SerializeToString(deterministic=True))]
    return StatusError(status.code, status.message, trailing)


def _message_of(error: TailraceError, shown: RangeShower) -> proto.CDCError:
    match error:
        case ClusterMismatchError():
            mismatch = proto.ClusterMismatch(request_cluster=error.requested, actual_cluster=error.actual)
            return proto.CDCError(cluster_mismatch=mismatch)
        case UnknownRangeError():
            return proto.CDCError(range_not_found=proto.RangeNotFound(range_id=error.range_id))
        case OutOfBoundError():
            within = error.within
            return proto.CDCError(
                out_of_bound=proto.OutOfBound(
                    key=error.key, range_id=within.id, range_start=within.start, range_limit=within.end
                )
            )
        case StaleEpochError():
            right = None if error.right is None else shown(error.right)
            return proto.CDCError(stale_epoch=proto.StaleEpoch(old_range=shown(error.left), new_range=right))
        case NotRegisteredError():
            who = proto.NotRegistered(range_id=error.range_id, subscriber_name=error.name)
            return proto.CDCError(not_registered=who)
        case PullerBusyError():
            return proto.CDCError(busy=proto.Busy(range_id=error.range_id, subscriber_name=error.name))
        case BehindHorizonError():
            lost = proto.LogLost(requested_index=error.requested, oldest_index=error.horizon)
            return proto.CDCError(log_lost=lost)
        case BeyondHeadError() | LogError():
            return proto.CDCError(raft_fail=proto.RaftFail(reason=cdc_status(error).message))
        case _:
            return proto.CDCError(server_error=proto.ServerError(msg=cdc_status(error).message))
