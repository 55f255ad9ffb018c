"""What the log needs of a disk, kept by the real one and by the fake."""

import pytest

from tailrace.log.files import DiskFiles, Files
from tailrace.testing.files import Crash, MemoryFiles


@pytest.fixture(params=["disk", "memory"])
def files(request, tmp_path) -> Files:
    return DiskFiles(tmp_path / "log") if request.param == "disk" else MemoryFiles()


def test_a_new_directory_is_empty(files):
    assert files.names() == []


def test_what_was_written_can_be_read_and_reads_end_with_the_file(files):
    file = files.create("a")
    file.write_at(0, [b"hello ", memoryview(b"world")])
    file.sync()
    assert file.read_at(0, 100) == b"hello world"
    assert file.read_at(6, 3) == b"wor"
    assert file.read_at(11, 5) == b""
    assert file.read_at(50, 5) == b""
    assert file.size() == 11
    file.close()
    again = files.open("a")
    assert again.read_at(0, 5) == b"hello"
    again.close()


def test_writing_behind_the_end_leaves_zeros_between_and_writing_within_replaces(files):
    file = files.create("a")
    file.write_at(4, [b"xy"])
    file.write_at(1, [b"ab", b""])
    assert file.read_at(0, 10) == b"\0ab\0xy"
    file.close()


def test_many_and_large_parts_are_written_whole(files):
    parts = [bytes([number]) * 100_000 for number in range(50)]
    file = files.create("a")
    file.write_at(3, parts)
    assert file.read_at(3, file.size()) == b"".join(parts)
    file.close()


def test_truncating_cuts_and_extends_with_zeros(files):
    file = files.create("a")
    file.write_at(0, [b"hello"])
    file.truncate(2)
    assert file.size() == 2
    file.truncate(4)
    assert file.read_at(0, 10) == b"he\0\0"
    file.close()


def test_creating_empties_a_file_that_is_there(files):
    file = files.create("a")
    file.write_at(0, [b"hello"])
    file.close()
    file = files.create("a")
    assert file.size() == 0
    file.close()


def test_opening_a_file_that_is_not_there_is_refused(files):
    with pytest.raises(FileNotFoundError):
        files.open("a")
    with pytest.raises(FileNotFoundError):
        files.rename("a", "b")
    files.remove("a")


def test_names_are_sorted_and_a_rename_takes_the_place_of_another_file(files):
    for name in ("c", "a", "b"):
        file = files.create(name)
        file.write_at(0, [name.encode()])
        file.close()
    files.rename("c", "a")
    files.sync_names()
    assert files.names() == ["a", "b"]
    file = files.open("a")
    assert file.read_at(0, 9) == b"c"
    file.close()


def test_a_removed_file_stays_readable_for_those_who_have_it_open(files):
    file = files.create("a")
    file.write_at(0, [b"hello"])
    reading = files.open("a")
    files.remove("a")
    assert files.names() == []
    assert reading.read_at(0, 5) == b"hello"
    reading.close()
    file.close()


def test_a_file_opened_for_reading_cannot_be_written(files):
    files.create("a").close()
    file = files.open("a")
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.write_at(0, [b"x"])
    file.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.read_at(0, 1)


def test_a_file_opened_for_writing_keeps_what_it_has(files):
    file = files.create("a")
    file.write_at(0, [b"hello"])
    file.close()
    file = files.open("a", write=True)
    file.write_at(5, [b"!"])
    assert file.read_at(0, 9) == b"hello!"
    file.close()


def test_a_directory_that_is_not_there_has_no_files(tmp_path):
    assert DiskFiles(tmp_path / "none", make=False).names() == []
    assert not (tmp_path / "none").exists()


def test_the_fake_forgets_what_was_not_synced():
    files = MemoryFiles()
    file = files.create("a")
    file.write_at(0, [b"synced"])
    file.sync()
    files.sync_names()
    file.write_at(6, [b" and not"])
    files.create("b").write_at(0, [b"unnamed"])
    assert files.after_crash(0).names() == ["a"]
    assert files.after_crash(0).bytes_of("a") == b"synced"
    assert files.after_crash(1).bytes_of("a") == b"synced and not"
    assert files.after_crash(1).names() == ["a", "b"]
    survived = {files.after_crash(seed).bytes_of("a") for seed in range(2, 60)}
    assert len(survived) > 3
    assert all(data.startswith(b"synced") for data in survived)


def test_the_fake_never_syncs_what_a_failed_sync_has_lost():
    files = MemoryFiles()
    file = files.create("a")
    file.write_at(0, [b"good"])
    file.sync()
    files.sync_names()
    file.write_at(4, [b" lost"])
    files.fail_syncs = 1
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    file.sync()
    assert file.read_at(0, 20) == b"good lost"
    assert files.after_crash(0).bytes_of("a") == b"good"


def test_the_fake_writes_what_fits_on_a_full_disk():
    files = MemoryFiles()
    file = files.create("a")
    files.capacity_bytes = 4
    with pytest.raises(OSError, match="No space"):
        file.write_at(0, [b"too long"])
    assert file.read_at(0, 20) == b"too "
    file.write_at(0, [b"fits"])


def test_the_fake_stops_before_the_chosen_operation_and_for_ever_after():
    files = MemoryFiles()
    files.crash_at = 1
    file = files.create("a")
    for _ in range(2):
        with pytest.raises(Crash):
            file.write_at(0, [b"x"])
    assert files.after_crash(1).bytes_of("a") == b""
