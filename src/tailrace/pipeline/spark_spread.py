"""Changes that tasks of Spark have, and work that is run over them where they are.

What tasks hand on is binary: Spark moves it without looking into it, so a change costs it next to nothing.
"""

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from tailrace.model.errors import SinkUnavailableError, TailraceError
from tailrace.model.table import TableSchema
from tailrace.pipeline.sink.base import TableChanges
from tailrace.pipeline.sink.spread import Divide, Tally, TaskResults

__all__ = ["SparkSpread", "describe", "tallied"]

_T = TypeVar("_T")
_I = TypeVar("_I")

Decode = Callable[[pa.Table], Iterator[tuple[Tally, list[TableChanges]]]]
"""Takes rows of a DataFrame apart: yields changes, and what was met among them. Picklable."""

_CHANGES, _MADE, _TALLY, _FAILED = range(4)
"""What a row of a task's answer holds."""

_COLUMNS = pa.schema([("bucket", pa.int32()), ("kind", pa.int32()), ("held", pa.binary())])
_SPARK_COLUMNS = "bucket int, kind int, held binary"

_LOST = ("exited unexpectedly", "ExecutorLostFailure", "Python worker failed to connect back")
"""What Spark says when a process is gone that ran a task, and it does not try again itself."""


def describe(session: Any, title: str) -> None:
    """Have Spark's pages show what the jobs are for that this thread starts from now on.

    A session of Spark Connect has no way to say it.
    """
    context = getattr(session, "sparkContext", None)
    if context is not None:
        context.setJobDescription(title)


class SparkSpread:
    """The changes in a DataFrame, which `decode` makes of its rows; see `Spread`. Each run reads it again.

    `title` is what Spark's pages show of its jobs.
    """

    def __init__(self, frame: Any, decode: Decode, title: str) -> None:
        self._frame = frame
        self._decode = decode
        self._title = title

    def each(self, work: Callable[[Iterator[TableChanges]], Iterator[_T]]) -> TaskResults[_T]:
        """Run `work` in each task over the changes that it has."""
        return self._run(self._frame.mapInArrow(_Each(self._decode, work), _SPARK_COLUMNS))

    def gathered(
        self, divide: Divide, buckets: int, work: Callable[[int, list[TableChanges]], Iterator[_T]]
    ) -> TaskResults[_T]:
        """Bring the changes of each bucket together, and run `work` over each bucket that has any."""
        divided = self._frame.mapInArrow(_Divide(self._decode, divide), _SPARK_COLUMNS)
        return self._run(divided.repartitionById(buckets, "bucket").mapInArrow(_Gather(work), _SPARK_COLUMNS))

    def over(self, items: Sequence[_I], work: Callable[[_I], Iterator[_T]]) -> list[_T]:
        """Run `work` over each item, each in a task of its own; a single one here."""
        if len(items) <= 1:
            return [result for item in items for result in work(item)]
        numbers = self._frame.sparkSession.range(0, len(items), 1, len(items))
        found: TaskResults[_T] = self._run(numbers.mapInArrow(_Over(items, work), _SPARK_COLUMNS))
        return found.results

    def _run(self, frame: Any) -> TaskResults[Any]:
        describe(frame.sparkSession, self._title)
        return _found(frame)


class _Each(Struct, frozen=True):
    decode: Decode
    work: Callable[[Iterator[TableChanges]], Iterator[Any]]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _encoded(self._run(batches))

    def _run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, int, Any]]:
        met: list[Tally] = []
        changes = (one for batch in batches for one in _decoded(batch, self.decode, met))
        for result in self.work(changes):
            yield 0, _MADE, result
        yield 0, _TALLY, _sum(met)


class _Divide(Struct, frozen=True):
    decode: Decode
    divide: Divide

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _encoded(self._run(batches))

    def _run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, int, Any]]:
        met: list[Tally] = []
        for batch in batches:
            for one in _decoded(batch, self.decode, met):
                for bucket, some in self.divide(one):
                    yield bucket, _CHANGES, _packed(some)
        yield 0, _TALLY, _sum(met)


class _Gather(Struct, frozen=True):
    work: Callable[[int, list[TableChanges]], Iterator[Any]]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _encoded(self._run(batches))

    def _run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, int, Any]]:
        gathered: dict[int, list[TableChanges]] = {}
        for batch in batches:
            for row in batch.to_pylist():
                held = pickle.loads(row["held"])  # noqa: S301 - of our own tasks
                if row["kind"] == _CHANGES:
                    gathered.setdefault(row["bucket"], []).append(_unpacked(*held))
                else:
                    yield 0, row["kind"], held
        for bucket, changes in gathered.items():
            for result in self.work(bucket, changes):
                yield 0, _MADE, result


class _Over(Struct, frozen=True):
    items: Sequence[Any]
    work: Callable[[Any], Iterator[Any]]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _encoded(self._run(batches))

    def _run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, int, Any]]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for result in self.work(self.items[number]):
                    yield 0, _MADE, result


def _encoded(rows: Iterator[tuple[int, int, Any]]) -> Iterator[pa.RecordBatch]:
    """Yield rows as Spark takes them. An error of ours is sent like everything else, so that it arrives as it is."""
    try:
        for bucket, kind, held in rows:
            yield _row(bucket, kind, held)
    except TailraceError as error:
        yield _row(0, _FAILED, (type(error), error.args, error.__dict__))


def _row(bucket: int, kind: int, held: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([bucket], pa.int32()), pa.array([kind], pa.int32()), pa.array([pickle.dumps(held)], pa.binary())],
        schema=_COLUMNS,
    )


def _found(frame: Any) -> TaskResults[Any]:
    """Run tasks, and return what they made and met.

    Raises:
        TailraceError: What went wrong in a task, if it is one of our errors.
        SinkUnavailableError: A process that ran a task is gone.
    """
    try:
        rows = frame.toArrow()
    except Exception as error:  # of which kind depends on how Spark is reached
        if any(words in str(error) for words in _LOST):
            raise SinkUnavailableError("a process that ran a Spark task has died") from error
        raise
    held: list[list[Any]] = [[], [], [], []]
    for kind, value in zip(rows["kind"].to_pylist(), rows["held"].to_pylist(), strict=True):
        held[kind].append(pickle.loads(value))  # noqa: S301 - of our own tasks
    for cls, args, fields in held[_FAILED]:
        restored = cls.__new__(cls, *args)
        restored.__dict__.update(fields)
        raise restored
    return TaskResults(held[_MADE], _sum(held[_TALLY]))


def _decoded(batch: pa.RecordBatch, decode: Decode, met: list[Tally]) -> Iterator[TableChanges]:
    """Yield the changes in some rows, and note what was met."""
    if batch.num_rows:
        for tally, changes in decode(pa.table(batch)):
            met.append(tally)
            yield from changes


def tallied(rows: pa.Table, label: str) -> Tally:
    """Return what there is among rows, counted by the values of a column."""
    counted = pc.value_counts(rows[label]).to_pylist()
    return Tally(pc.max(rows["_offset"]).as_py() or 0, {str(one["values"]): one["counts"] for one in counted})


def _sum(met: Sequence[Tally]) -> Tally:
    counts: dict[str, int] = {}
    for one in met:
        for name, count in one.counts.items():
            counts[name] = counts.get(name, 0) + count
    return Tally(max((one.offset for one in met), default=0), counts)


def _packed(one: TableChanges) -> tuple[TableSchema, bool, bytes]:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, one.changes.schema) as writer:
        writer.write_table(one.changes)
    return one.schema, one.fresh, sink.getvalue().to_pybytes()


def _unpacked(schema: TableSchema, fresh: bool, held: bytes) -> TableChanges:
    return TableChanges(schema, pa.ipc.open_stream(held).read_all(), fresh)
