"""What operators do to capture in a PostgreSQL database; see `Administration`."""

from collections.abc import Mapping, Sequence
from contextlib import closing

from tailrace.model.errors import NotFoundError, SourceAbilityError, SourceStateError
from tailrace.source.administration import CaptureStatus, Finding, ReaderStatus
from tailrace.source.postgres.catalog import Catalog
from tailrace.source.postgres.ddl_trigger import drop_triggers, ensure_triggers
from tailrace.source.postgres.doctor import examine
from tailrace.source.postgres.options import SLOT_PREFIX, PostgresSettings
from tailrace.source.postgres.position import Slot, format_lsn
from tailrace.source.postgres.setup import drop_stale_publications, ensure_publication, require_capturable

__all__ = ["PostgresAdministration", "Status"]

_ADVICE = (
    "The server keeps write-ahead log for each replication slot until its reader has confirmed it. Limit that with "
    "max_slot_wal_keep_size, and remove readers that will not come back: tailrace capture remove URL --reader NAME"
)
_ADVICE_SLOT = (
    "The replication slot is made when a server starts, because each log has its own; changes from before that are not "
    "captured. Name one with the option slot to have it made now."
)


class Status(CaptureStatus, frozen=True):
    """What capture is doing in a PostgreSQL database."""

    publication: str = ""
    positions: tuple[tuple[str, str], ...] = ()

    def facts(self) -> Mapping[str, str]:
        """Return the publication, and how far each slot is."""
        return {"publication": self.publication, **{f"slot {name}": text for name, text in self.positions}}


class PostgresAdministration:
    """Capture in one PostgreSQL database: its publication and its slots."""

    def __init__(self, url: str, settings: PostgresSettings) -> None:
        self._url = url
        self._settings = settings

    def set_up(self) -> Sequence[str]:
        """Make the publication, and the slot where it is named."""
        settings = self._settings
        with closing(Catalog(self._url, settings)) as catalog:
            require_capturable(catalog)
            ensure_publication(catalog, settings.publication, settings)
            if settings.ddl_trigger:
                ensure_triggers(catalog)
            if not settings.slot:
                return (_ADVICE, _ADVICE_SLOT)
            if catalog.slot(settings.slot) is None:
                catalog.create_slot(settings.slot, failover=settings.failover)
        return (_ADVICE,)

    def remove(self, *, force: bool) -> bool:
        """Drop our slots and the publication that we made; see `Administration.remove`."""
        with closing(Catalog(self._url, self._settings)) as catalog:
            slots = self._slots(catalog)
            if not force:
                for slot in slots:
                    _require_unused(slot)
            for slot in slots:
                self._drop(catalog, slot)
            drop_stale_publications(catalog)
            publication = catalog.publication(self._settings.publication)
            ours = publication is not None and publication.ours
            if ours:
                catalog.drop_publication(self._settings.publication)
            return drop_triggers(catalog) or bool(slots) or ours

    def remove_reader(self, name: str, *, force: bool) -> None:
        """Drop one slot, by its name with or without the prefix."""
        with closing(Catalog(self._url, self._settings)) as catalog:
            found = {slot.name: slot for slot in self._slots(catalog)}
            slot = found.get(name) or found.get(f"{SLOT_PREFIX}{name}")
            if slot is None:
                raise NotFoundError(f"reader {name!r} not found; there is {', '.join(found) or 'none'}")
            if not force:
                _require_unused(slot)
            self._drop(catalog, slot)

    def status(self) -> Status:
        """Return publication, tables and slots; changes nothing."""
        name = self._settings.publication
        with closing(Catalog(self._url, self._settings)) as catalog:
            slots = self._slots(catalog)
            publication = catalog.publication(name)
            if publication is None and not slots:
                return Status(None)
            tables = catalog.published(name) if publication is not None else []
        shown = tuple(f"{one.namespace}.{one.name}" if one.namespace != "public" else one.name for one in tables)
        readers = tuple(
            ReaderStatus(slot.name, 0, slot.temporary, not slot.lost, slot.active_pid is not None, slot.retained_bytes)
            for slot in slots
        )
        return Status(
            capture=name,
            tables=shown,
            size_bytes=max((slot.retained_bytes for slot in slots), default=0),
            readers=readers,
            publication=name if publication is not None else "there is none",
            positions=tuple((slot.name, _shown(slot)) for slot in slots),
        )

    def execute(self, sql: str, *, bulk: bool) -> None:
        """Refuse: there is nothing that capture is in the way of."""
        raise SourceAbilityError("postgresql", "runs no statements: change the schema as usual, with psql for example")

    def doctor(self) -> Sequence[Finding]:
        """Return what is wrong or risky for capture."""
        return examine(self._url, self._settings)

    def _slots(self, catalog: Catalog) -> list[Slot]:
        """Return the slots that are ours: those with our prefix, and the one that is named."""
        return [
            slot
            for slot in catalog.slots()
            if slot.database == catalog.database
            and (slot.name == self._settings.slot or slot.name.startswith(SLOT_PREFIX))
        ]

    @staticmethod
    def _drop(catalog: Catalog, slot: Slot) -> None:
        if slot.active_pid is not None:
            catalog.rows("SELECT pg_terminate_backend(%s, 5000)", [slot.active_pid])
        if not slot.temporary:
            catalog.drop_slot(slot.name)


def _require_unused(slot: Slot) -> None:
    if slot.active_pid is not None:
        raise SourceStateError(
            f"replication slot {slot.name} is read now (process {slot.active_pid} of the server), and its reader would "
            "fail: stop it first, or use --force"
        )


def _shown(slot: Slot) -> str:
    kept = (
        f"confirmed {format_lsn(slot.confirmed_lsn)}, {slot.lag_bytes} bytes behind, "
        f"{slot.retained_bytes} bytes of write-ahead log kept"
    )
    if slot.safe_bytes is not None:
        kept += f", {slot.safe_bytes} more until it is lost"
    return f"{kept}, lost: {slot.lost}" if slot.lost else kept
