"""Facts about a metadata database that is damaged, missing or held by somebody else."""

import contextlib
import os
import random
import sqlite3

import pytest

from tailrace.clock import SystemClock
from tailrace.meta.store import MetaStore
from tailrace.model.errors import MetadataError
from tailrace.model.op import Op
from tailrace.model.subscription import FilterOptions, Format, Include, SubscriptionDraft, TableTarget
from tailrace.model.table import TableName

FLIPS = 5_000 if os.environ.get("LONG_TESTS") else 300
DRAFT = SubscriptionDraft(
    source="app",
    target=TableTarget((TableName("app", "users"),)),
    filter=FilterOptions((Op.INSERT,)),
    include=Include(before=True, after=True),
    format=Format.PLAIN_JSON,
    cursor=1000,
)


async def made(path):
    store = await MetaStore.open(f"sqlite:///{path}", SystemClock())
    await store.close()


def garbage(path):
    path.write_bytes(os.urandom(5000))


def other_magic(path):
    path.write_bytes(b"x" + path.read_bytes()[1:])


def cut(path):
    path.write_bytes(path.read_bytes()[:6000])


def zeros(path):
    data = path.read_bytes()
    path.write_bytes(data[:4096] + bytes(8192) + data[12288:])


def directory(path):
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("hurt", "reason"),
    [
        (garbage, "no SQLite database; restore"),
        (other_magic, "no SQLite database; restore"),
        (cut, "damaged; restore"),
        (zeros, "damaged; restore"),
        (directory, "cannot be opened"),
    ],
    ids=["garbage", "another magic", "cut short", "zeros in its middle", "a directory"],
)
async def test_a_damaged_file_is_refused_with_what_to_do(tmp_path, hurt, reason):
    path = tmp_path / "metadata.db"
    await made(path)
    hurt(path)
    with pytest.raises(MetadataError, match=reason):
        await made(path)


async def test_a_file_that_somebody_keeps_locked_is_refused_with_what_to_do(tmp_path):
    path = tmp_path / "metadata.db"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(MetadataError, match="another process keeps its file locked"):
            await made(path)
    await made(path)


@pytest.mark.parametrize("stem", ["", "-wal", "-shm"], ids=["the file", "its WAL", "its index of the WAL"])
async def test_every_cut_of_a_file_opens_or_is_refused_by_name(tmp_path, stem):
    """Never another error, and never a wait for ever."""
    whole = tmp_path / "whole.db"
    store = await MetaStore.open(f"sqlite:///{whole}", SystemClock())
    files = {one: (tmp_path / f"whole.db{one}").read_bytes() for one in ("", "-wal", "-shm")}
    await store.close()
    outcomes = set()
    for number, size in enumerate(range(0, len(files[stem]), max(1, len(files[stem]) // 12))):
        path = tmp_path / f"{number}.db"
        for one, data in files.items():
            (tmp_path / f"{path.name}{one}").write_bytes(data[:size] if one == stem else data)
        try:
            await made(path)
            outcomes.add("opened")
        except MetadataError:
            outcomes.add("refused")
    assert "opened" in outcomes or stem == ""


async def everything(path):
    """Open a file; return what a server reads from it at its start."""
    store = await MetaStore.open(f"sqlite:///{path}", SystemClock())
    try:
        return await store.subscriptions(), await store.queries(), await store.shards(["app", "other"])
    finally:
        await store.close()


@pytest.mark.timeout(1200)
async def test_every_turned_bit_is_refused_by_name_or_loses_nothing(tmp_path):
    """One value may be another one afterwards, for SQLite keeps no checksums; no subscription is ever missing."""
    whole = tmp_path / "whole.db"
    store = await MetaStore.open(f"sqlite:///{whole}", SystemClock())
    for _ in range(5):
        await store.add(DRAFT)
    await store.close()
    await everything(whole)
    data, rng = whole.read_bytes(), random.Random(12)
    used = [place for place, byte in enumerate(data) if byte]
    path, refused = tmp_path / "hurt.db", 0
    for _ in range(FLIPS):
        hurt = bytearray(data)
        hurt[rng.choice(used)] ^= 1 << rng.randrange(8)
        for stem in ("-wal", "-shm"):
            (tmp_path / f"hurt.db{stem}").unlink(missing_ok=True)
        path.write_bytes(hurt)
        try:
            subscriptions, _, _ = await everything(path)
        except MetadataError:
            refused += 1
        else:
            assert len(subscriptions) == 5
    assert refused > FLIPS / 2
