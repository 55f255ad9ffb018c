"""Pipelines: what they are, who has them, and how far they are. Pure."""

from collections.abc import Mapping
from enum import IntEnum, StrEnum

from msgspec import Struct

from tailrace.meta.dead_letter import OnRefused
from tailrace.model.errors import MetadataError
from tailrace.model.key_interval import KeyInterval

__all__ = [
    "MOVES",
    "Copying",
    "Definition",
    "Figures",
    "Lease",
    "Mode",
    "OnDrop",
    "Pipeline",
    "RangeProgress",
    "SinkState",
    "Stage",
    "moved",
]


class Stage(IntEnum):
    """How far a range is, as JimDB has it: forward only, retried in place.

    The numbers are those in the table `progress`.
    """

    REGISTER = 0
    """Planned: its rows have not been read."""

    SNAPSHOT = 1
    """Its rows are being copied."""

    INCREMENTAL_LOG = 2
    """Its rows are in the sink; changes follow."""

    FAILED = 3
    """It cannot go on by itself: the pipeline must be reset."""

    @property
    def word(self) -> str:
        """Return the stage's name on the wires."""
        return self.name.lower()


MOVES: Mapping[Stage, frozenset[Stage]] = {
    Stage.REGISTER: frozenset({Stage.SNAPSHOT, Stage.FAILED}),
    Stage.SNAPSHOT: frozenset({Stage.INCREMENTAL_LOG, Stage.FAILED}),
    Stage.INCREMENTAL_LOG: frozenset({Stage.FAILED}),
    Stage.FAILED: frozenset(),
}
"""Stages that may follow each stage. Staying is allowed: what failed is tried again where it was."""


def moved(now: Stage, to: Stage) -> Stage:
    """Return the stage after a move.

    Raises:
        MetadataError: No such move is allowed: someone else has changed the table.
    """
    if to is not now and to not in MOVES[now]:
        raise MetadataError(f"a range cannot move from stage {now.word} to {to.word}")
    return to


class Mode(StrEnum):
    """What a sink makes of the changes."""

    CURRENT = "current"
    """The table as it is now: one row per key."""

    HISTORY = "history"
    """Each version of each row with the time from which and until which it was valid."""

    APPEND = "append"
    """The changes themselves, one row each."""


class OnDrop(StrEnum):
    """What becomes of the rows in the sink when their table is dropped in the source."""

    MIRROR = "mirror"
    """They go; a history closes their versions, and `append` has a record of it."""

    KEEP = "keep"
    """They stay, until a row of the same key comes again."""

    STOP = "stop"
    """The pipeline stops there, for people to decide."""


class Definition(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One pipeline: where from, where to, and how."""

    name: str
    source: str
    """Name of the source on the server."""

    tables: tuple[str, ...]
    sink: str
    """URL of the sink. It may hold a password: never show it as it is."""

    mode: Mode | None = None
    """What the sink makes of the changes; the sink's usual mode by default."""

    transform: str = ""
    """Spark SQL over the view `changes`; empty for none."""

    transform_function: str = ""
    """`module:function` of a function that makes a DataFrame of the DataFrame of a table's changes; empty for none."""

    py_files: tuple[str, ...] = ()
    """Paths of modules and archives that the function needs, which every process of Spark gets."""

    types: dict[str, str] = {}
    """Types of columns by `TABLE.COLUMN`, in place of those that the source has for them."""

    server: str = "http://127.0.0.1:8080"

    envelope: str = ""
    """How a message tells a change; our own envelope by default. This and the next three are for sinks of messages."""

    filter: str = ""
    """SQL predicate, or a CEL one behind `cel:`; empty for all changes."""

    project: tuple[str, ...] = ()
    """Columns, and `NAME = EXPRESSION`, that messages have; all columns by default."""

    on_refused: OnRefused = OnRefused.PARK
    """What becomes of a change that the target refuses."""

    on_drop: OnDrop = OnDrop.MIRROR

    trigger_s: float = 0.0
    """How often a batch begins; 0 for as soon as there are changes."""

    batch_changes: int = 0
    batch_bytes: int = 0
    """Most changes of a batch, and about how many bytes of the log; 0 for what suits the sink."""

    maintain_every_s: float = 0.0
    """How often the tables of a lake are maintained; 0 for never."""

    partition_by: tuple[str, ...] = ()
    """Columns, as `TABLE.COLUMN`, by which tables of a lake are divided when they are made."""

    properties: dict[str, str] = {}
    """Properties that tables of a lake get when they are made."""

    @property
    def is_transformed(self) -> bool:
        """Tell whether there is a transformation."""
        return bool(self.transform or self.transform_function)

    @property
    def transformation(self) -> tuple[str, str, tuple[str, ...]]:
        """Return what a transformation is made of: two pipelines that have the same make the same rows."""
        return self.transform, self.transform_function, self.py_files


class Lease(Struct, frozen=True):
    """The right to work on a pipeline. `term` rises with each taking."""

    name: str
    owner: str
    term: int


class Figures(Struct, frozen=True):
    """What a worker last said about its pipeline, for people."""

    rows: int = 0
    """Rows that the tables had when they were planned."""

    changes: int = 0
    """Changes applied by the newest run."""

    changes_per_s: float = 0.0
    rows_per_s: float = 0.0
    """Rate at which rows are being copied; 0 when none are."""

    batches: int = 0
    """Batches of changes that the newest query of Spark has finished."""

    batch_changes: int = 0
    """Changes of the log, of whatever table, that the newest of these batches spans."""

    batch_s: float = 0.0
    """How long that batch took, from its trigger to its commit."""

    head: int = 0
    time_us: int = 0
    problem: str = ""
    maintained_time_us: int = 0
    """When the tables of the sink were last maintained by the schedule, or the schedule began."""


class Copying(Struct, frozen=True):
    """The batch that is on its way into the sink: which keys of a table it holds, by range."""

    number: int
    table: str
    intervals: dict[int, KeyInterval]
    ends: tuple[int, ...]
    """Ranges that are wholly copied with it."""

    reached: int | None = None
    """How far the sink was in the log then, which tells the batch from another of its number; None if not known."""


class SinkState(StrEnum):
    """What a sink had of the tables when their copying began."""

    EMPTY = "empty"
    """Nothing: rows are added without a look at what is there."""

    SHARED = "shared"
    """Rows of others, which stay; or all that it had was compared."""

    STALE = "stale"
    """What an earlier run left, or what lacks changes that are gone. It is compared before the log is followed."""


class Pipeline(Struct, frozen=True):
    """One pipeline as the database has it."""

    definition: Definition
    paused: bool
    cancelled: bool
    owner: str
    leased: bool
    generation: int
    """How often it started over: was reset, or found changes gone that it lacked."""

    sink_state: SinkState
    subscription: str | None
    copying: Copying | None
    figures: Figures


class RangeProgress(Struct, frozen=True):
    """How far a range of a table is."""

    table: str
    range_id: int
    stage: Stage
    within: KeyInterval
    last_key: str | None
    init_version: int
    current_version: int
    last_log_index: int
    rows_copied: int

    @property
    def left(self) -> KeyInterval:
        """Return the keys that have not been copied."""
        return KeyInterval(self.last_key or self.within.after, self.within.through)
