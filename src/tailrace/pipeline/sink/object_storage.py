"""Files of a sink in object storage, through obstore; see `tailrace.pipeline.sink.storage`.

There is no rename and no lock there. What takes their place is the conditional put: an object is created only where
there is none, and replaced only where it is the one that was read. An answer may be lost after the put took effect:
what the object then holds tells whose it is.
"""

import functools
import shutil
import tempfile
import uuid
import weakref
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import obstore
from msgspec import Struct
from obstore.exceptions import AlreadyExistsError, BaseError, GenericError, PreconditionError
from obstore.store import AzureStore, GCSStore, S3Store

from tailrace.model.errors import SinkRefusedError
from tailrace.pipeline.sink.object_error import object_error
from tailrace.pipeline.sink.object_place import ObjectPlace
from tailrace.pipeline.sink.storage import MANIFEST, Held

__all__ = ["ObjectStorage"]

_STORES: dict[str, Any] = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}

_OVERTAKEN = (AlreadyExistsError, PreconditionError)


@contextmanager
def _errors(place: object) -> Iterator[None]:
    """Raise what object storage says, by whichever library, as an error of the sink in that place."""
    try:
        yield
    except (BaseError, OSError) as error:
        raise object_error(f"the sink in {place}", str(error)) from None


class ObjectStorage(Struct, frozen=True):
    """A prefix of a bucket. A group is the objects that its manifest names, which is put last and only once."""

    place: ObjectPlace

    def errors(self) -> AbstractContextManager[None]:
        """Raise what the object storage says as an error of the sink."""
        return _errors(self.place)

    def open(self) -> None:
        """Look whether the bucket is there and can be listed."""
        next(iter(obstore.list(self._store, f"{_TRACES}/", chunk_size=1)), None)

    def below(self, path: str) -> "ObjectStorage":
        """Return the storage of a prefix below this one."""
        return ObjectStorage(self.place.below(path))

    def read(self, name: str) -> Held | None:
        """Return a small object."""
        try:
            found = obstore.get(self._store, name)
        except FileNotFoundError as error:
            if _is_gone(error):
                return None
            raise
        return Held(bytes(found.bytes()), found.meta["e_tag"] or "")

    def replace(self, name: str, data: bytes, held: Held | None) -> bool:
        """Put an object in the place of another, unless another process has."""
        mode: Any = "create" if held is None else {"e_tag": held.version}
        return self._put(name, data, mode)

    def create(self, name: str) -> "_ObjectFile":
        """Begin an object, which is written here and uploaded when it is whole."""
        return _ObjectFile(self, name)

    @contextmanager
    def fetched(self, name: str) -> Iterator[Path]:
        """Give an object as a file, which is removed afterwards."""
        with tempfile.TemporaryDirectory(prefix="tailrace-") as directory:
            path = Path(directory) / "object"
            with path.open("wb") as file:
                for part in obstore.get(self._store, name).stream():
                    file.write(part)
            yield path

    def upload(self, name: str, path: Path) -> None:
        """Put a file into an object of a name that nobody else has."""
        obstore.put(self._store, name, path)

    def names(self, folder: str) -> Iterator[str]:
        """Return the names of all objects below a folder."""
        for some in obstore.list(self._store, f"{folder.rstrip('/')}/"):
            for one in some:
                yield one["path"]

    def remove(self, names: Sequence[str]) -> None:
        """Remove objects."""
        if names:
            obstore.delete(self._store, list(names))

    @contextmanager
    def group(self, folder: str, name: str) -> Iterator["_ObjectGroup"]:
        """Begin a group. Its objects have names of their own; nobody looks at them before a manifest names them."""
        with tempfile.TemporaryDirectory(prefix="tailrace-") as directory:
            yield _ObjectGroup(self, f"{folder}/{name}", uuid.uuid4().hex, Path(directory))

    def groups(self, folder: str) -> list[str]:
        """Return the names of the groups in a folder that have a manifest."""
        ends = f"/{MANIFEST}"
        names = (name.removeprefix(f"{folder}/") for name in self.names(folder) if name.endswith(ends))
        return sorted(name.removesuffix(ends) for name in names)

    def tidy(self, folder: str, abandoned: bytes) -> None:
        """Remove objects that no manifest names, of groups of which it is certain that none ever will.

        The group after the last whole one may be another worker's, who is held up and goes on: it is left alone.
        """
        found: dict[str, dict[str, list[str]]] = {}
        for name in self.names(folder):
            group, _, file = name.removeprefix(f"{folder}/").partition("/")
            found.setdefault(group, {}).setdefault("" if file == MANIFEST else _try_of(file), []).append(name)
        whole = [group for group, tries in found.items() if "" in tries]
        last = max(whole, default="")
        for group, tries in found.items():
            if group > last:
                continue
            if "" not in tries:
                self._put(f"{folder}/{group}/{MANIFEST}", abandoned, "create")
            elif len(tries) <= 2:
                continue
            manifest = self.read(f"{folder}/{group}/{MANIFEST}")
            assert manifest is not None, "manifests are never removed"
            left = [name for one, names in tries.items() if one and one.encode() not in manifest.data for name in names]
            self.remove(left)

    def _put(self, name: str, data: bytes, mode: Any) -> bool:
        """Put a small object on a condition; tell whether it is there, by this try or by one whose answer was lost."""
        try:
            obstore.put(self._store, name, data, mode=mode, use_multipart=False)
        except (*_OVERTAKEN, GenericError) as error:
            # What was sent may have arrived though it failed, and a retry inside obstore is refused then.
            held = self.read(name)
            if held is not None and held.data == data:
                return True
            if isinstance(error, _OVERTAKEN):
                return False
            raise
        return True

    @property
    def _store(self) -> Any:
        place = self.place
        return _opened(place.scheme, place.bucket, place.prefix, tuple(sorted(place.settings.items())))


_TRACES = "_tailrace"
_STORES_MAX = 64


@functools.lru_cache(_STORES_MAX)
def _opened(scheme: str, bucket: str, prefix: str, settings: tuple[tuple[str, str], ...]) -> Any:
    """Return the store of a place, made once: it keeps connections."""
    given = ObjectPlace(scheme, bucket, prefix, dict(settings)).for_obstore
    return _STORES[scheme](bucket, prefix=prefix or None, **given)


def _is_gone(error: FileNotFoundError) -> bool:
    """Tell whether it is the object that is not there, not its bucket."""
    return not isinstance(object_error("", str(error)), SinkRefusedError)


def _try_of(file: str) -> str:
    """Return which try to write a group a file belongs to."""
    return Path(file).name.partition(".")[0].rpartition("-")[2]


class _ObjectFile:
    def __init__(self, storage: ObjectStorage, name: str) -> None:
        directory = tempfile.mkdtemp(prefix="tailrace-")
        self.path = Path(directory) / "object"
        self._storage, self._name = storage, name
        self._forget = weakref.finalize(self, shutil.rmtree, directory, ignore_errors=True)

    def keep(self, *, durable: bool = True) -> None:
        self._storage.upload(self._name, self.path)
        self._forget()


class _ObjectGroup:
    def __init__(self, storage: ObjectStorage, prefix: str, try_: str, directory: Path) -> None:
        self._storage, self._prefix, self._try, self._directory = storage, prefix, try_, directory
        self._files: dict[str, Path] = {}

    def add(self, stem: str, suffix: str) -> tuple[str, Path]:
        name = f"{stem}-{self._try}.{suffix}"
        path = self._files[name] = self._directory / str(len(self._files))
        return name, path

    def commit(self, manifest: bytes) -> bool:
        for name, path in self._files.items():
            self._storage.upload(f"{self._prefix}/{name}", path)
        return self._storage.replace(f"{self._prefix}/{MANIFEST}", manifest, None)
