"""What a request for a change stream asks for. Pure."""

from collections.abc import Mapping, Sequence

from tailrace.access.principal import Principal
from tailrace.delivery.grpc.proto import coordinode_cdc_pb2 as proto
from tailrace.interface.coordinode.selection import CommitSelection
from tailrace.interface.coordinode.shard import StreamShard
from tailrace.interface.coordinode.token import MERGED, ResumeToken, token_of
from tailrace.meta.consumer_store import Bounded, Retention, Strict
from tailrace.model.errors import InvalidRequestError, PermissionDeniedError

__all__ = [
    "MERGE_HEADER",
    "SHARD_HEADER",
    "check_consumer_id",
    "is_merged",
    "retention_of",
    "selection_of",
    "shard_of",
    "shards_for",
    "start_token",
]

MERGE_HEADER = "x-tailrace-merge"
"""Metadata that asks for all shards in one stream: `all`."""

SHARD_HEADER = "x-tailrace-shard"
"""Metadata that names the shard, by its number."""

_EDGE_TYPES_MAX = 1024
_CONSUMER_ID_MAX = 255


def start_token(request: proto.SubscribeRequest) -> ResumeToken | None:
    """Return the token of a request; None where it names no place."""
    token = token_of(request.resume_token)
    return None if not request.HasField("resume_token") or (token.oldest and token.shard == 0) else token


def is_merged(header: str | None, token: ResumeToken | None) -> bool:
    """Tell whether all shards are asked for: by the metadata, or by a token of a merged stream.

    Raises:
        InvalidRequestError: The metadata say something else than `all`, or the token is of one shard.
    """
    if header is None:
        return token is not None and token.shard == MERGED
    if header != "all":
        raise InvalidRequestError(f"metadata {MERGE_HEADER}: write all")
    if token is not None and token.shard != MERGED:
        raise InvalidRequestError("resume token is for one shard, this stream merges all")
    return True


def shard_of(
    header: str | None, token: ResumeToken | None, shards: Mapping[int, StreamShard], principal: Principal
) -> StreamShard:
    """Return the shard that is asked for: by the metadata, by the token, or else the first that the caller reaches.

    Raises:
        InvalidRequestError: There is no such shard that the caller reaches, or the two differ.
        PermissionDeniedError: The caller reaches none.
    """
    number = token.shard if token is not None else None
    if header is not None:
        if not (header.isascii() and header.isdigit() and len(header) <= 10):
            raise InvalidRequestError(f"metadata {SHARD_HEADER}: write the number of a shard")
        if number is not None and number != int(header):
            raise InvalidRequestError(f"resume token is for shard {number}, this stream serves shard {int(header)}")
        number = int(header)
    reached = {shard.number: shard for shard in shards_for(principal, shards)}
    first = next(iter(reached))
    if number is None:
        return reached[first]
    if number not in reached:  # one that the caller may not reach is not there for it
        if header is None:
            raise InvalidRequestError(f"resume token is for shard {number}, this stream serves shard {first}")
        raise InvalidRequestError(f"unknown shard {number}")
    return reached[number]


def shards_for(principal: Principal, shards: Mapping[int, StreamShard]) -> Sequence[StreamShard]:
    """Return the shards that a caller reaches, by their numbers, at least one.

    Raises:
        PermissionDeniedError: It reaches none.
    """
    ordered = [shards[number] for number in sorted(shards)]
    reached = [shard for shard in ordered if principal.namespaces is None or shard.source in principal.namespaces]
    if not reached:
        raise PermissionDeniedError("Access denied: no shard may be read")
    return reached


def selection_of(filters: proto.CdcFilters, *, restricted: bool) -> CommitSelection:
    """Return which commits are wanted.

    Raises:
        InvalidRequestError: There are too many edge types.
    """
    if len(filters.edge_types) > _EDGE_TYPES_MAX:
        raise InvalidRequestError(f"filters.edge_types: name at most {_EDGE_TYPES_MAX}")
    migration = filters.is_migration if filters.HasField("is_migration") else None
    return CommitSelection(frozenset(filters.edge_types), migration, restricted)


def retention_of(message: proto.ConsumerRetention) -> Retention:
    """Return the retention that a registration asks for.

    Raises:
        InvalidRequestError: It names no policy.
    """
    match message.WhichOneof("policy"):
        case "strict":
            return Strict()
        case "bounded":
            bounded = message.bounded
            liveness_ms = bounded.liveness_timeout_ms if bounded.HasField("liveness_timeout_ms") else None
            return Bounded(bounded.max_progress_lag_ms, bounded.max_retained_bytes, liveness_ms)
        case _:
            raise InvalidRequestError("retention is required to register a consumer: strict or bounded")


def check_consumer_id(consumer_id: str) -> None:
    """Refuse what cannot be a name.

    Raises:
        InvalidRequestError: It is empty, too long, or not printable.
    """
    if not consumer_id:
        raise InvalidRequestError("consumer_id is required")
    if len(consumer_id) > _CONSUMER_ID_MAX or not consumer_id.isprintable():
        raise InvalidRequestError(f"consumer_id: at most {_CONSUMER_ID_MAX} characters, all of them printable")
