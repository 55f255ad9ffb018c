"""Tasks for tests: run here, one after the other, with all that they are given and give pickled."""

import pickle

from msgspec import structs

from tailrace.pipeline.sink.base import ChangeType
from tailrace.pipeline.sink.spread import SpreadBatch, Tally, TaskResults

CHANGES_MAX = 600_000
"""Said to be in each batch, so that it is cut into several buckets."""


class LocalSpread:
    """The changes of a batch in `tasks` parts, cut anywhere."""

    def __init__(self, tables, tasks=3):
        self.tables, self.tasks = tables, tasks

    def parts(self):
        for number in range(self.tasks):
            yield [structs.replace(one, changes=self.cut(one.changes, number)) for one in self.tables]

    def cut(self, changes, number):
        step = -(-changes.num_rows // self.tasks) or 1
        return changes.slice(number * step, step)

    def each(self, work):
        made = []
        for part in self.parts():
            made += copied(list(copied(work)(one for one in copied(part) if one.changes.num_rows)))
        return TaskResults(made, self.tally())

    def gathered(self, divide, buckets, work):
        found = {}
        for part in self.parts():
            for one in part:
                for bucket, some in copied(divide)(copied(one)) if one.changes.num_rows else ():
                    assert bucket < buckets
                    found.setdefault(bucket, []).append(copied(some))
        made = [one for bucket, some in found.items() for one in copied(work)(bucket, some)]
        return TaskResults(copied(made), self.tally())

    def over(self, items, work):
        return [copied(one) for item in items for one in copied(work)(copied(item))]

    def tally(self):
        offsets = [offset for one in self.tables for offset in one.changes["_offset"].to_pylist()]
        return Tally(max(offsets, default=0), {one.schema.table.wire: one.changes.num_rows for one in self.tables})


def copied(value):
    """Return what another process would be given."""
    return pickle.loads(pickle.dumps(value))


class SpreadingSink:
    """A sink that has all batches applied by tasks, where they can be."""

    def __init__(self, sink, tasks=3):
        self._sink, self._tasks = sink, tasks

    def __getattr__(self, name):
        return getattr(self._sink, name)

    def apply(self, batch):
        tables = [batch.tables[number] for number in range(len(batch.tables))]
        kinds = {kind for one in tables for kind in one.changes["_change_type"].to_pylist()}
        filled = any(one.changes.num_rows for one in tables)
        if not filled or not self._sink.takes_spread([one.schema for one in tables]):
            self._sink.apply(batch)
            return
        (source, offset) = next(iter(batch.offsets.items()))
        fresh = kinds == {str(ChangeType.READ)} and all(one.fresh for one in tables)
        changes = LocalSpread(tables, self._tasks)
        self._sink.apply_spread(
            SpreadBatch(batch.pipeline, batch.number, source, changes, CHANGES_MAX, offset=offset, fresh=fresh)
        )
