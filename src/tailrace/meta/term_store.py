"""Terms in the metadata database: how often the log of each shard was opened for writing, and when."""

from collections.abc import Sequence

from sqlalchemy import Connection, delete, func, insert, select

from tailrace.meta.store import MetaStore
from tailrace.meta.table import term
from tailrace.model.number import Index

__all__ = ["TermStore"]


class TermStore:
    """The terms of a metadata database. What a method wrote is durable when it returns."""

    def __init__(self, store: MetaStore) -> None:
        self._store = store

    async def begin(self, shard: int, first_index: Index) -> Sequence[tuple[Index, int]]:
        """Begin the next term of a shard, whose first commit would be `first_index`.

        Return the first index of each term with its number, rising. A term that held no commit is forgotten, but its
        number is not used again. The first term of a shard is that of all commits before it, too.
        """

        def run(connection: Connection) -> Sequence[tuple[Index, int]]:
            mine = term.c.shard == shard
            highest = connection.execute(select(func.max(term.c.term)).where(mine)).scalar()
            begun = 1 if highest is None else highest + 1
            first = Index(1) if highest is None else first_index
            connection.execute(delete(term).where(mine, term.c.first_index >= first))
            connection.execute(insert(term).values(shard=shard, term=begun, first_index=first))
            rows = connection.execute(select(term.c.first_index, term.c.term).where(mine).order_by(term.c.term))
            return [(Index(row.first_index), row.term) for row in rows]

        return await self._store.transact(run)
