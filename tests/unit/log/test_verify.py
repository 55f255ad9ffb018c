import pyarrow as pa
import pytest
from msgspec.structs import replace

from log_samples import SCHEMA, SMALL, PlainLog, draft
from tailrace.log.frame import frame_header, pack_frame
from tailrace.log.log import Log
from tailrace.log.recover import recover
from tailrace.log.segment import segment_name
from tailrace.log.verify import verify
from tailrace.log.writer import EncodedFrame, encode_frame
from tailrace.model.errors import LogError
from tailrace.model.number import Index, Offset
from tailrace.testing.clock import FakeClock
from tailrace.testing.files import MemoryFiles


def made(commits: int = 9) -> MemoryFiles:
    files = MemoryFiles()
    log = PlainLog(files, replace(SMALL, segment_bytes_max=3000))
    for number in range(1, commits + 1):
        log.append(draft(number, 2))
    return files


def test_a_sound_log_has_no_problems_and_is_counted():
    files = made()
    report = verify(files)
    assert report.problems == ()
    assert (report.changes, report.commits, report.frames, report.head) == (18, 9, 9, 18)
    assert report.segments == sum(name.endswith(".bin") for name in files.names())
    assert report.torn_bytes == 0


def test_an_empty_log_is_sound():
    assert verify(MemoryFiles()).problems == ()


def test_a_damaged_frame_is_named_and_the_other_segments_are_still_checked():
    files = made()
    name = segment_name(Index(1))
    data = bytearray(files.bytes_of(name))
    data[-5] ^= 1
    files.put(name, bytes(data))
    report = verify(files)
    assert next(problem.segment for problem in report.problems) == name
    assert report.frames >= 6
    assert str(report.problems[0]).startswith(f"{name}, byte ")


def test_a_torn_tail_is_no_problem_when_it_was_not_synced():
    files = made(1)
    name = segment_name(Index(1))
    data = files.bytes_of(name)
    files.put(name, data.rstrip(b"\0") + b"TRFR torn")
    files.remove("state")
    report = verify(files)
    assert report.problems == ()
    assert report.torn_bytes > 0


def test_synced_changes_that_are_gone_are_a_problem():
    files = made(2)
    name = segment_name(Index(1))
    files.put(name, files.bytes_of(name)[:1000])
    assert verify(files).problems != ()


def segments_of(files: MemoryFiles) -> list[str]:
    return [name for name in files.names() if name.endswith(".bin")]


@pytest.mark.parametrize(
    ("missing", "reason"),
    [
        ([0], "the file is missing: changes 1 to 6 are gone"),
        ([1], "the file is missing"),
        ([-1], "the file is missing"),
        ([-2, -1], "the file is missing"),
        ([0, 1, 2, 3], "the file is missing"),
    ],
    ids=["the oldest", "one in the middle", "the newest", "the two newest", "all"],
)
def test_a_missing_segment_is_a_problem_and_the_others_are_checked(missing, reason):
    files = made(12)
    names = segments_of(files)
    assert len(names) == 4
    for place in missing:
        files.remove(names[place])
    report = verify(files)
    assert [(problem.segment, problem.reason) for problem in report.problems] == [(names[missing[-1]], reason)]
    assert report.segments == 4 - len(missing)
    assert report.frames == 3 * report.segments


@pytest.mark.parametrize("place", [0, 1, -1], ids=["the oldest", "one in the middle", "the newest"])
def test_a_damaged_header_is_one_problem_and_the_other_segments_are_checked(place):
    files = made(12)
    name = segments_of(files)[place]
    files.put(name, b"x" + files.bytes_of(name)[1:])
    report = verify(files)
    assert [problem.segment for problem in report.problems] == [name]
    assert report.frames == 9


def test_two_segments_in_each_others_place_are_problems():
    files = made(12)
    one, other = segments_of(files)[1:3]
    content = files.bytes_of(one), files.bytes_of(other)
    files.put(one, content[1])
    files.put(other, content[0])
    assert [problem.segment for problem in verify(files).problems] == [one, other]


async def test_what_retention_removed_is_no_problem_and_what_it_left_is_one_when_missing():
    files = MemoryFiles()
    options = replace(SMALL, segment_bytes_max=3000, retention_changes=9)
    log = await Log.open(files, options, FakeClock())
    await log.put_schema(SCHEMA)
    for number in range(1, 13):
        await log.append([draft(number, 2)])
    await log.retain()
    await log.close()
    names = segments_of(files)
    assert names[0] != segment_name(Index(1))
    for seed in range(8):  # also where the power fails behind the removal
        assert verify(files.after_crash(seed)).problems == ()
    files.remove(names[0])
    assert "are gone" in verify(files).problems[0].reason


def test_a_log_that_open_refuses_is_not_sound():
    """Each file missing, or cut at its half, or with a bit turned in its middle."""
    files = made(12)
    refused = 0
    for name in files.names():
        data = files.bytes_of(name)
        half = len(data.rstrip(b"\0")) // 2
        flipped = data[:half] + bytes([data[half] ^ 4]) + data[half + 1 :]
        for damaged in (None, data[:half], flipped):
            hurt = files.copy()
            hurt.put(name, damaged or b"")
            if damaged is None:
                hurt.remove(name)
            found = verify(hurt).problems
            try:
                recover(hurt)
            except LogError:
                refused += 1
                assert found, name
    assert refused >= 5


def test_an_unknown_schema_is_a_problem():
    files = made(1)
    files.remove("schemas.jsonl")
    assert "schema 1 is not known" in str(verify(files).problems[0])


def spoiled(column: str, values: list) -> EncodedFrame:
    """Return a frame of two commits with one column replaced, its checksums right."""
    frame = encode_frame([draft(1, 2), draft(2, 1)], Offset(1), Index(1), 0)
    place = frame.batch.schema.get_field_index(column)
    field = frame.batch.schema.field(place)
    batch = frame.batch.set_column(place, field, pa.array(values, field.type))
    payload = memoryview(batch.serialize())
    numbers = {"first_offset": Offset(1), "first_index": Index(1), "append_time_us": 0}
    head = pack_frame(payload, change_count=3, commit_count=2, **numbers)
    return EncodedFrame(frame_header(head, 0, 0), batch, (head, payload), frame.last_commit)


@pytest.mark.parametrize(
    ("column", "values", "reason"),
    [
        ("offset", [1, 2, 4], "offsets are not dense"),
        ("index", [1, 2, 2], "commits are not whole"),
        ("index", [1, 1, 3], "commits are not whole"),
        ("position", [None, None, "p2"], "commits are not whole"),
        ("position", [None, "p1", None], "commits are not whole"),
        ("op", [1, 9, 1], "an op is unknown"),
        ("hlc", [5, 5, 5], "timestamps do not rise"),
        ("hlc", [5, 6, 7], "timestamps do not rise"),
        ("hlc", [5, 5, 4], "timestamps do not rise"),
        ("schema", [1, 2, 1], "schema 2 is not known"),
    ],
)
def test_a_frame_with_good_checksums_and_bad_content_is_a_problem(column, values, reason):
    files = MemoryFiles()
    PlainLog(files).writer.store(spoiled(column, values))
    (problem,) = verify(files).problems
    assert reason in problem.reason
