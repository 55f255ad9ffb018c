"""Options of a PostgreSQL source, as people write them, and as the parts that do the work have them."""

import re
from urllib.parse import urlsplit

from msgspec import Struct

from tailrace.model.errors import ConfigError
from tailrace.quantity import parse_duration_s, parse_size_bytes
from tailrace.source.postgres.type_info import TEXT_SETTINGS
from tailrace.source.reader import Reader

__all__ = ["SLOT_PREFIX", "PostgresSettings", "slot_name"]

SLOT_PREFIX = "tailrace_"

_SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_SLOT = re.compile(r"[a-z0-9_]{1,63}")
_KEEP_ACTIONS = ("warn", "drop_slot")
_DURATIONS = ("connect_timeout", "silence_timeout", "status_interval")


class PostgresSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Options of a PostgreSQL source, as people write them."""

    slot: str = ""
    """Name of the replication slot; by default `tailrace_` and the name of the log."""

    publication: str = "tailrace"
    """Name of the publication. It is made for the tables below where there is none of that name."""

    tables: str = ""
    """Tables of a publication that capture makes, with commas between; empty for all tables of the database."""

    partition_root: bool = True
    """Whether a publication that capture makes shows changes of partitions as changes of the partitioned table."""

    ddl_trigger: bool = True
    """Whether `serve` and `capture setup` make the event triggers that announce schema changes, where they may."""

    streaming: bool = True
    """Whether large transactions are received before they are committed. They are shown after it in any case."""

    spool_directory: str = ""
    """Where large transactions wait for their commit; by default the directory for temporary files."""

    wal_keep_max: str = ""
    """How much write-ahead log the server may keep for the slot before something is done; empty for no limit."""

    wal_keep_action: str = "warn"
    """What is done then: `warn`, or `drop_slot` where nothing is confirmed either. Then changes are missing."""

    failover: bool = True
    """Whether a slot that capture makes is kept by standbys, too, where the server can do that (version 17)."""

    sslmode: str = "prefer"
    """How the connection is encrypted; `verify-full` checks the server's certificate and name, too."""

    sslrootcert: str = ""
    """File with the certificates of the authorities that are trusted; `system` for those of the machine."""

    sslcert: str = ""
    """File with the certificate of the client."""

    sslkey: str = ""
    """File with the key of the client's certificate."""

    connect_timeout: str = "10s"
    """How long connecting may take."""

    silence_timeout: str = "60s"
    """How long the server may be silent before the connection counts as broken."""

    status_interval: str = "10s"
    """How often the server hears from us at least. Must be shorter than its wal_sender_timeout."""

    def __post_init__(self) -> None:
        if self.sslmode not in _SSL_MODES:
            raise ValueError(f"sslmode: it is one of {', '.join(_SSL_MODES)}")
        if self.slot and not _SLOT.fullmatch(self.slot):
            raise ValueError("slot: it has up to 63 lower-case letters, digits and underscores")
        if self.wal_keep_action not in _KEEP_ACTIONS:
            raise ValueError(f"wal_keep_action: it is one of {', '.join(_KEEP_ACTIONS)}")
        try:
            _ = self.keep_max_bytes
        except ConfigError as error:
            raise ValueError(f"wal_keep_max: {error}") from error
        if not self.publication or "\0" in self.publication:
            raise ValueError("publication: it must have a name")
        for name in _DURATIONS:
            try:
                self.seconds(name)
            except ConfigError as error:
                raise ValueError(f"{name}: {error}") from error

    @property
    def keep_max_bytes(self) -> int | None:
        """Return how much write-ahead log may be kept for the slot; None for any."""
        return parse_size_bytes(self.wal_keep_max) if self.wal_keep_max else None

    def seconds(self, name: str) -> float:
        """Return an option that is a duration."""
        seconds = parse_duration_s(getattr(self, name))
        if seconds is None or seconds <= 0:
            raise ConfigError("there must be a limit")
        return seconds

    def conninfo(self, url: str) -> dict[str, str]:
        """Return parameters of a connection for libpq, but those that the URL has."""
        files = {name: getattr(self, name) for name in ("sslrootcert", "sslcert", "sslkey") if getattr(self, name)}
        settings = " ".join(f"-c {name}={value}" for name, value in TEXT_SETTINGS.items() if name != "client_encoding")
        database = {} if urlsplit(url).path.strip("/") else {"dbname": "postgres"}
        silence_s = max(2, round(self.seconds("silence_timeout")))
        return {
            **database,
            "sslmode": self.sslmode,
            **files,
            "connect_timeout": str(max(1, round(self.seconds("connect_timeout")))),
            "application_name": "tailrace",
            "client_encoding": "UTF8",
            "options": settings,
            "keepalives_idle": "10",
            "keepalives_interval": "5",
            "keepalives_count": "3",
            "tcp_user_timeout": str(silence_s * 1000),
        }


def slot_name(settings: PostgresSettings, reader: Reader) -> str:
    """Return the name of the slot of a reader."""
    if settings.slot and not reader.ephemeral:
        return settings.slot
    plain = re.sub("[^a-z0-9_]", "_", reader.name.lower())
    return f"{SLOT_PREFIX}{plain}"[:63]
