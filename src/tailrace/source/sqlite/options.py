"""Settings of the SQLite source."""

from msgspec import Struct

__all__ = ["SqliteOptions"]


class SqliteOptions(Struct, frozen=True):
    """How the SQLite source behaves. Each field has a default that suits one busy database on one machine."""

    busy_timeout_ms: int = 5000
    """How long to wait for a locked database when capture is set up or follows a schema change."""

    read_changes_max: int = 1024
    """Most rows fetched from the change table at once; keeps read locks short."""

    read_changes_locked: int = 128
    """Most rows fetched at once where readers lock writers out, that is without WAL."""

    read_bytes: int = 4 << 20
    """Bytes of row images to aim at when rows are fetched; large rows are fetched fewer at a time."""

    group_changes_max: int = 16384
    """Most changes handed over in one group of commits, whole commits only."""

    commit_changes_max: int = 100_000
    """Most changes of a commit that are held at once. A larger transaction comes in parts of one commit; a larger
    backlog whose borders are unknown is cut into several."""

    commit_changes_first: int = 1000
    """Changes in the first commit of a backlog that has to be cut; each further one has twice as many, up to the most.
    A process that does not live long gets ahead, too."""

    commit_bytes_max: int = 64 << 20
    """Most bytes of row images held at once, like `commit_changes_max`."""

    busy_changes: int = 128
    """From this many changes confirmed at once, the database is busy: it gets the disk for a moment before the log
    syncs again, for it mostly lies on the same one."""

    busy_pause_s: float = 0.02
    """How long that moment is."""

    poll_interval_s: float = 0.25
    """How often to look without having been woken."""

    settle_s: float = 0.25
    """How long to look again at short intervals after the files were touched: the bytes arrive before the commit."""

    trim_interval_s: float = 5.0
    """How long confirmed changes may stay in the database."""

    trim_rest_s: float = 1.0
    trim_rest_max_s: float = 60.0
    """Without WAL, how long nobody must have written before changes are removed, and how long to wait for that."""

    trim_backlog: int = 20_000
    """This many confirmed changes are removed at once, without waiting for the interval."""

    trim_changes_max: int = 2000
    """Most changes removed in one transaction; keeps write locks short."""

    trim_busy_timeout_ms: int = 50
    """How long removal waits for a locked database before it puts itself off."""

    hold_bytes: int = 2 << 20
    """Size from which we copy the write-ahead log into the database, so that writers can start it again."""

    hold_bytes_lock: int = 8 << 20
    """Size from which we take the write lock for a moment to do so, where writers make no pause."""

    hold_bytes_max: int = 128 << 20
    """Size beyond which we do not hold the write-ahead log; borders of transactions may be lost then."""
