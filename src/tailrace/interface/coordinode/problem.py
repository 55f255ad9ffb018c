"""Errors as CoordiNode's clients see them: a status and, in its details, why. Pure."""

from collections.abc import Mapping

from tailrace.delivery.grpc.call import StatusCode, StatusError
from tailrace.delivery.grpc.proto import status_pb2
from tailrace.delivery.grpc.status import status_of
from tailrace.model.errors import (
    BeyondHeadError,
    CommitsLostError,
    ConsumerEndedError,
    ConsumerExistsError,
    ConsumersFullError,
    TailraceError,
)

__all__ = ["DETAILS", "DOMAIN", "stream_status"]

DOMAIN = "coordinode.sw.foundation"
"""Who the reasons belong to, as the clients know it."""

DETAILS = "grpc-status-details-bin"
_ERROR_INFO = "type.googleapis.com/google.rpc.ErrorInfo"


def stream_status(error: TailraceError) -> StatusError:
    """Return the status that tells a client of an error."""
    match error:
        case CommitsLostError():
            lost = f"checkpoint {error.requested} is below shard floor {error.first}"
            return _status(
                StatusCode.FAILED_PRECONDITION,
                f"change stream retention lost: retention lost: {lost}",
                "RETENTION_LOST",
                {"requested_index": str(error.requested), "first_retained_index": str(error.first)},
            )
        case ConsumerEndedError():
            return _status(
                StatusCode.FAILED_PRECONDITION,
                str(error),
                "CONSUMER_TERMINATED",
                {
                    "incarnation": str(error.incarnation),
                    "reason": error.reason,
                    "checkpoint": str(error.checkpoint),
                },
            )
        case ConsumerExistsError():
            return StatusError(StatusCode.ALREADY_EXISTS, str(error))
        case ConsumersFullError():
            return StatusError(StatusCode.RESOURCE_EXHAUSTED, str(error))
        case BeyondHeadError():
            return _status(
                StatusCode.OUT_OF_RANGE,
                f"resume token names commit {error.requested}, the newest is {error.head}: it is of another log",
                "POSITION_BEYOND_LOG",
                {"requested_index": str(error.requested), "last_index": str(error.head)},
            )
        case _:
            return status_of(error)


def _status(code: StatusCode, message: str, reason: str, metadata: Mapping[str, str]) -> StatusError:
    info = status_pb2.ErrorInfo(reason=reason, domain=DOMAIN, metadata=metadata)
    detail = status_pb2.Detail(type_url=_ERROR_INFO, value=info.SerializeToString(deterministic=True))
    status = status_pb2.Status(code=code, message=message, details=[detail])
    return StatusError(code, message, [(DETAILS, status.SerializeToString(deterministic=True))])
