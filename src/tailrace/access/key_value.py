"""Keys and values for every interface: which store a namespace names, who may use it, and what it takes."""

from collections.abc import AsyncGenerator, Mapping, Sequence

from tailrace.access.namespace import source_for
from tailrace.access.principal import Capability, Principal
from tailrace.model.errors import PermissionDeniedError, SourceAbilityError
from tailrace.model.table import TableName
from tailrace.source.key_value import Entry, KeyValueStore, PageLimits, check_entries, check_keys
from tailrace.sql.dialect import Dialects, dialect_for

__all__ = ["KeyValues"]

_TABLE = "kv"
"""The table of keys and values, as rights name it."""

_ANSWER_BYTES_MAX = 4 << 20
"""Most bytes of one answer with its keys: few clients take more. What one message has put, another can give back."""

_ENTRY_BYTES = 16
"""Most that an entry of an answer takes besides its key and its value."""

_VALUE_BYTES = 8
"""Most that an answer takes besides its one value."""

_PAGE = PageLimits(entries_max=1024, bytes_max=256 << 10)
"""What is read of a scan at one time."""


class KeyValues:
    """The stores of all sources; None stands for a source that has none. For tasks of one event loop.

    Every method raises `PermissionDeniedError` where the principal may not do it, `UnknownSourceError` where the
    namespace names no source, `SourceAbilityError` where the source takes no keys and values, `InvalidRequestError`
    where something is out of bounds, and `SourceUnavailableError` where the database cannot be reached now.
    """

    def __init__(self, stores: Mapping[str, KeyValueStore | None], dialects: Dialects | None = None) -> None:
        self._stores = dict(stores)
        self._dialects = dialects or {}

    async def get(self, principal: Principal, namespace: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the values of keys, None for one that is not there."""
        store = self._store(principal, namespace, Capability.READ)
        check_keys(keys)
        taken_bytes = _VALUE_BYTES if len(keys) == 1 else sum(len(key) + _ENTRY_BYTES for key in keys)
        return await store.get(keys, max(0, _ANSWER_BYTES_MAX - taken_bytes))

    async def put(self, principal: Principal, namespace: str, entries: Sequence[Entry]) -> None:
        """Keep entries, all or none."""
        store = self._store(principal, namespace, Capability.WRITE)
        check_entries(entries)
        if entries:
            await store.put(entries)

    async def delete(self, principal: Principal, namespace: str, key: bytes) -> bool:
        """Remove a key; tell whether it was there."""
        store = self._store(principal, namespace, Capability.WRITE)
        check_keys([key])
        return await store.delete(key)

    async def scan(
        self, principal: Principal, namespace: str, prefix: bytes, limit: int
    ) -> AsyncGenerator[Sequence[Entry]]:
        """Yield the entries whose keys begin with `prefix`, in order, some at a time; a limit of 0 is none.

        What is written meanwhile may or may not be seen; an entry that was there all the time is seen once.
        """
        store = self._store(principal, namespace, Capability.READ)
        if prefix:
            check_keys([prefix])
        after: bytes | None = None
        left = limit
        while True:
            entries_max = min(left, _PAGE.entries_max) if limit else _PAGE.entries_max
            page = await store.scan(prefix, after, PageLimits(entries_max, _PAGE.bytes_max))
            if not page:
                return
            yield page
            after = page[-1].key
            left -= len(page)
            if limit and not left:
                return

    def _store(self, principal: Principal, namespace: str, capability: Capability) -> KeyValueStore:
        principal.require(capability)
        source = source_for(principal, namespace, self._stores)
        table = TableName(source, _TABLE)
        principal.require_table(table)
        if principal.narrowed(table, dialect_for(source, self._dialects).fold):
            raise PermissionDeniedError(f"Access denied to keys and values of '{source}': only some rows are yours")
        store = self._stores[source]
        if store is None:
            raise SourceAbilityError(source, "takes no keys and values: this kind of source has none")
        return store
