"""Resume tokens: places between two commits, as CoordiNode writes them. Pure.

A token stands for the index `segment_id + entry_offset` of the commit that comes next; segments are named by their
first index, so it stays good when the log is cut into other segments. All zero means the oldest commit.

A place in the merged stream of all shards is one token, too: its shard is `MERGED`, `segment_id` is the timestamp (hlc)
of the last event, and `entry_offset` is that event's shard plus one. Everything up to that timestamp is before the
place, of commits with that very timestamp those of this shard and of lower ones.
"""

from typing import Protocol

from msgspec import Struct

from tailrace.interface.coordinode.protobuf import number_field
from tailrace.model.errors import InvalidRequestError
from tailrace.model.number import Index

__all__ = ["MERGED", "ResumeToken", "TokenMessage", "encode_token", "index_of", "merged_token", "token_of"]

MERGED = 0xFFFFFFFF
"""The shard of tokens of merged streams."""

_UNSIGNED_MAX = 2**64 - 1


class ResumeToken(Struct, frozen=True):
    """One token."""

    shard: int
    segment: int
    entries: int

    @property
    def oldest(self) -> bool:
        """Tell whether it names no place: the oldest commit is meant."""
        return self.segment == 0 and self.entries == 0


class TokenMessage(Protocol):
    """A ResumeToken of protobuf."""

    shard_id: int
    segment_id: int
    entry_offset: int


def token_of(message: TokenMessage) -> ResumeToken:
    """Return the token that a message is."""
    return ResumeToken(message.shard_id, message.segment_id, message.entry_offset)


def encode_token(token: ResumeToken) -> bytes:
    """Return the bytes of a ResumeToken."""
    return number_field(1, token.shard) + number_field(2, token.segment) + number_field(3, token.entries)


def index_of(token: ResumeToken, shard: int) -> Index:
    """Return the index of the commit that comes next at a token's place in a shard.

    Raises:
        InvalidRequestError: It is a token of another shard, or no number that an index can be.
    """
    if token.shard != shard:
        raise InvalidRequestError(f"resume token is for shard {token.shard}, this stream serves shard {shard}")
    if token.segment + token.entries > _UNSIGNED_MAX:
        raise InvalidRequestError("resume token is out of range: segment_id + entry_offset exceeds 64 bits")
    return Index(token.segment + token.entries)


def merged_token(hlc: int, shards_through: int) -> ResumeToken:
    """Return the place in the merged stream behind timestamp `hlc` of the shards before `shards_through`."""
    return ResumeToken(MERGED, hlc, shards_through)
