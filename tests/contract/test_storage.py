"""One contract for the places of a sink's files: a directory, and a bucket."""

import pickle

import pytest

from object_server import KEY, ObjectServer
from tailrace.model.errors import SinkError
from tailrace.pipeline.sink.local_storage import LocalStorage
from tailrace.pipeline.sink.object_place import object_place
from tailrace.pipeline.sink.object_storage import ObjectStorage
from tailrace.pipeline.sink.storage import MANIFEST


def objects(server, bucket):
    return ObjectStorage(object_place(f"s3://{bucket}/some/place", {"endpoint": server.endpoint, **KEY}, {}))


@pytest.fixture(params=["directory", "bucket"])
def storage(request, tmp_path, servers):
    if request.param == "directory":
        made = LocalStorage(tmp_path / "some" / "place")
    else:
        server = servers.get(ObjectServer)
        made = objects(server, server.bucket())
    made.open()
    return made


def group(storage, name, files=(("a/part", b"data"),), manifest=b"{}"):
    """Write a group; return what its commit said, and the names of its files."""
    with storage.group("home", name) as begun:
        names = []
        for stem, data in files:
            file, path = begun.add(stem, "txt")
            path.write_bytes(data)
            names.append(file)
        return begun.commit(manifest + "".join(names).encode()), names


def test_a_small_file_is_read_as_it_was_put(storage):
    assert storage.read("x/note.json") is None
    assert storage.replace("x/note.json", b"one", None)
    assert storage.read("x/note.json").data == b"one"
    assert storage.replace("x/note.json", b"", storage.read("x/note.json"))
    assert storage.read("x/note.json").data == b""


def test_a_small_file_is_replaced_only_by_who_has_read_it_as_it_is(storage):
    assert storage.replace("note", b"one", None)
    first = storage.read("note")
    assert not storage.replace("note", b"two", None)
    assert storage.replace("note", b"two", first)
    assert not storage.replace("note", b"three", first)
    assert storage.read("note").data == b"two"


def test_a_file_that_is_kept_can_be_fetched_and_is_listed_until_it_is_removed(storage):
    file = storage.create("deep/er/part-1.bin")
    file.path.write_bytes(b"x" * 7_000_000)
    file.keep()
    with storage.fetched("deep/er/part-1.bin") as path:
        assert path.read_bytes() == b"x" * 7_000_000
    assert list(storage.names("deep")) == ["deep/er/part-1.bin"]
    assert list(storage.names("dee")) == []
    storage.remove(["deep/er/part-1.bin", "deep/er/never.bin"])
    assert list(storage.names("deep")) == []


@pytest.mark.parametrize("name", ["a b", "ä€", "a%20b", "a%2Fb", "tilde~", "comma,plus+", "UPPER lower"])
def test_names_are_kept_as_they_are(storage, name):
    file = storage.create(f"{name}/{name}.json")
    file.path.write_bytes(name.encode())
    file.keep()
    assert list(storage.names(name)) == [f"{name}/{name}.json"]
    assert storage.read(f"{name}/{name}.json").data == name.encode()


def test_what_is_below_a_place_is_seen_from_both(storage):
    below = storage.below("inner")
    below.open()
    assert below.replace("note", b"one", None)
    assert storage.read("inner/note").data == b"one"


def test_a_group_is_there_when_it_is_committed_and_not_before(storage):
    with storage.group("home", "batch=1") as begun:
        name, path = begun.add("table=x/part", "txt")
        path.write_bytes(b"rows")
        assert storage.groups("home") == []
        assert begun.commit(b"manifest")
    assert storage.groups("home") == ["batch=1"]
    assert storage.read(f"home/batch=1/{MANIFEST}").data == b"manifest"
    with storage.fetched(f"home/batch=1/{name}") as found:
        assert found.read_bytes() == b"rows"


def test_a_group_that_is_not_committed_is_not_there(storage):
    with storage.group("home", "batch=1") as begun:
        begun.add("part", "txt")[1].write_bytes(b"rows")
    assert storage.groups("home") == []


def test_groups_come_in_the_order_of_their_names(storage):
    for name in ("batch=3", "batch=1", "batch=2"):
        assert group(storage, name)[0]
    assert storage.groups("home") == ["batch=1", "batch=2", "batch=3"]


def test_of_two_groups_of_one_name_the_first_stays(storage):
    assert group(storage, "batch=1", manifest=b"first")[0]
    assert not group(storage, "batch=1", manifest=b"second")[0]
    assert storage.read(f"home/batch=1/{MANIFEST}").data.startswith(b"first")


def test_tidying_leaves_all_that_manifests_name(storage):
    named = {}
    for number in range(3):
        assert group(storage, f"batch={number}")[0]
        written, _ = group(storage, f"batch={number}", manifest=b"late")
        assert not written
        manifest = storage.read(f"home/batch={number}/{MANIFEST}").data
        named[number] = [name for name in storage.names("home") if name.rpartition("/")[2].encode() in manifest]
    storage.tidy("home", b"abandoned")
    manifests = {f"home/batch={number}/{MANIFEST}" for number in named}
    assert set(storage.names("home")) == manifests | {name for names in named.values() for name in names}


def test_a_storage_can_be_handed_to_another_process(storage):
    assert storage.replace("note", b"one", None)
    assert pickle.loads(pickle.dumps(storage)).read("note").data == b"one"


def test_what_is_not_there_is_an_error_of_the_sink(storage):
    with pytest.raises(SinkError), storage.errors(), storage.fetched("nowhere") as path:
        path.read_bytes()


def test_a_bucket_is_tidied_of_groups_that_nobody_finished_and_nobody_can_finish_them_then(servers):
    server = servers.get(ObjectServer)
    bucket = server.bucket()
    storage = objects(server, bucket)
    held_up = ObjectStorage(storage.place)
    with held_up.group("home", "batch=2") as late:
        name, path = late.add("part", "txt")
        path.write_bytes(b"rows")
        held_up.upload(f"home/batch=2/{name}", path)
        storage.tidy("home", b"abandoned")
        assert f"home/batch=2/{name}" in set(storage.names("home")), "it may still be finished"
        assert group(storage, "batch=3")[0]
        storage.tidy("home", b"abandoned")
        assert f"home/batch=2/{name}" not in set(storage.names("home"))
        assert not late.commit(b"late")
    assert storage.read(f"home/batch=2/{MANIFEST}").data == b"abandoned"
    assert storage.groups("home") == ["batch=2", "batch=3"]
