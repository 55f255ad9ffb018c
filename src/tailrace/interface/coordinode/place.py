"""Where a stream begins: from a token to a commit and the offset before it."""

from collections.abc import Sequence

from tailrace.interface.coordinode.shard import StreamShard
from tailrace.interface.coordinode.token import ResumeToken, index_of
from tailrace.model.errors import BehindHorizonError, BeyondHeadError, CommitsLostError
from tailrace.model.number import Index, Offset

__all__ = ["StreamStart", "find_place", "find_places"]

StreamStart = tuple[Index, Offset]
"""A commit, and the offset behind which its changes come."""


async def find_place(shard: StreamShard, token: ResumeToken | None) -> StreamStart:
    """Return where a stream of one shard begins; without a token, with the oldest commit.

    Raises:
        InvalidRequestError: The token is of another shard, or no place at all.
        CommitsLostError: The commit was removed by retention.
        BeyondHeadError: The log has no such commit yet.
    """
    if token is None or token.oldest:
        return await _oldest(shard)
    return await _at(shard, index_of(token, shard.number))


async def find_places(shards: Sequence[StreamShard], token: ResumeToken | None) -> Sequence[StreamStart]:
    """Return where a merged stream begins in each of its shards; without a token, with the oldest commits.

    Raises:
        CommitsLostError: Commits of a shard behind the token were removed by retention, or may have been.
        BeyondHeadError: No commit of this server can have its timestamp yet.
    """
    if token is None or token.oldest:
        return [await _oldest(shard) for shard in shards]
    newest = max(shard.log.hlc_complete for shard in shards)
    if token.segment > newest:
        raise BeyondHeadError(requested=token.segment, head=newest)
    places = []
    for shard in shards:
        passed = token.segment if shard.number < token.entries else token.segment - 1
        following = await shard.log.commits.index_after_hlc(passed)
        if following is None:
            first = await shard.log.commits.first_index()
            raise CommitsLostError(requested=first - 1, first=first)
        places.append(await _at(shard, following))
    return places


async def _oldest(shard: StreamShard) -> StreamStart:
    while True:
        index = await shard.log.commits.first_index()
        try:
            return index, await shard.log.commits.offset_before(index)
        except BehindHorizonError:
            continue  # retention went on in between


async def _at(shard: StreamShard, index: Index) -> StreamStart:
    first = await shard.log.commits.first_index()
    if index < first:
        raise CommitsLostError(requested=index, first=first)
    try:
        return index, await shard.log.commits.offset_before(index)
    except BehindHorizonError as error:
        first = await shard.log.commits.first_index()
        raise CommitsLostError(requested=index, first=first) from error
