"""What a log looks like after damage: a table of corruptions, every cut and every flipped bit."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from log_samples import SMALL, PlainLog, contents, draft, rows_of
from tailrace.log.recover import examine, recover
from tailrace.log.segment import index_name, segment_name
from tailrace.log.state import STATE_NAME
from tailrace.model.errors import CorruptSegmentError
from tailrace.model.number import Index
from tailrace.testing.files import MemoryFiles

DRAFTS = [draft(number, 1 + number % 3) for number in range(1, 8)]
ROWS = rows_of(DRAFTS)
TIGHT = replace(SMALL, segment_bytes_max=4096)
FIRST, NEWEST = segment_name(Index(1)), segment_name(Index(6))


@pytest.fixture(scope="module")
def whole() -> MemoryFiles:
    """Return a log of seven frames in two segments, five in the first and two in the newest, as a crash leaves it."""
    files = MemoryFiles()
    log = PlainLog(files, replace(TIGHT, segment_bytes_max=1 << 20))
    for one in DRAFTS[:5]:
        log.append(one)
    log.writer._options = replace(TIGHT, segment_bytes_max=1)
    log.append(DRAFTS[5])
    log.writer._options = TIGHT
    log.append(DRAFTS[6])
    assert [name for name in files.names() if name.endswith(".bin")] == [FIRST, NEWEST]
    return files


def frames_of(files: MemoryFiles, name: str) -> list[int]:
    """Return where the frames of a segment begin, and where the last one ends."""
    data = files.bytes_of(name)
    places = [int.from_bytes(data[16:20], "little")]
    while data[places[-1] : places[-1] + 4] == b"TRFR":
        places.append(places[-1] + 48 + int.from_bytes(data[places[-1] + 12 : places[-1] + 16], "little"))
    return places


def edit(name: str, change: Callable[[bytearray, list[int]], object]) -> Callable[[MemoryFiles], None]:
    def corrupt(files: MemoryFiles) -> None:
        data = bytearray(files.bytes_of(name))
        change(data, frames_of(files, name))
        files.put(name, bytes(data))

    return corrupt


def zero(begin: int, end: int) -> Callable[[bytearray, list[int]], None]:
    def change(data: bytearray, _: list[int]) -> None:
        data[begin:end] = bytes(end - begin)

    return change


def garble(data: bytearray, begin: int) -> None:
    data[begin + 60 : begin + 80] = b"garbled in the middle"[:20]


def without(*names: str) -> Callable[[MemoryFiles], None]:
    def corrupt(files: MemoryFiles) -> None:
        for name in names:
            files.remove(name)

    return corrupt


def both(*corruptions: Callable[[MemoryFiles], None]) -> Callable[[MemoryFiles], None]:
    def corrupt(files: MemoryFiles) -> None:
        for one in corruptions:
            one(files)

    return corrupt


no_state = without(STATE_NAME)

SURVIVED: dict[str, tuple[Callable[[MemoryFiles], None], int]] = {
    "nothing": (lambda _: None, 7),
    "no state": (no_state, 7),
    "an empty state": (lambda files: files.put(STATE_NAME, b""), 7),
    "a damaged state": (edit(STATE_NAME, lambda data, _: data.__setitem__(20, 255)), 7),
    "no index": (without(index_name(Index(1))), 7),
    "a damaged index": (lambda files: files.put(index_name(Index(1)), b"x" * 96), 7),
    "an unfinished segment": (lambda files: files.put("oplog-00000000000000000008.bin.tmp", b"TRSEG"), 7),
    "no zeros behind the end": (edit(NEWEST, lambda data, places: data.__delitem__(slice(places[-1], None))), 7),
    "the last frame torn, and no state": (
        both(no_state, edit(NEWEST, lambda data, places: garble(data, places[-2]))),
        6,
    ),
    "the last frame zeroed, and no state": (
        both(no_state, edit(NEWEST, lambda data, places: zero(places[-2], places[-1])(data, places))),
        6,
    ),
    "all frames of the newest segment cut, and no state": (
        both(no_state, edit(NEWEST, lambda data, places: data.__delitem__(slice(places[0], None)))),
        5,
    ),
    "bytes of the next frame behind the end": (
        edit(NEWEST, lambda data, places: data.__setitem__(slice(places[-1], places[-1] + 30), b"TRFR" + b"x" * 26)),
        7,
    ),
}

REFUSED: dict[str, tuple[Callable[[MemoryFiles], None], str, int | None]] = {
    "the header zeroed": (edit(NEWEST, zero(0, 64)), NEWEST, 0),
    "an empty file": (lambda files: files.put(NEWEST, b""), NEWEST, 0),
    "an old segment's header zeroed": (edit(FIRST, zero(0, 64)), FIRST, 0),
    "the last synced frame torn": (edit(NEWEST, lambda data, places: garble(data, places[-2])), NEWEST, None),
    "a frame garbled before another": (edit(NEWEST, lambda data, places: garble(data, places[0])), NEWEST, None),
    "a frame garbled before another, and no state": (
        both(no_state, edit(NEWEST, lambda data, places: garble(data, places[0]))),
        NEWEST,
        None,
    ),
    "the newest segment missing": (without(NEWEST), NEWEST, 0),
    "all segments missing": (without(FIRST, NEWEST), NEWEST, 0),
    "the newest segment shorter than what was synced": (
        edit(NEWEST, lambda data, places: data.__delitem__(slice(places[-1] - 8, None))),
        NEWEST,
        None,
    ),
}


@pytest.mark.parametrize("name", SURVIVED)
def test_a_log_opens_with_all_that_is_whole_after(whole, name):
    corrupt, commits = SURVIVED[name]
    files = whole.copy()
    corrupt(files)
    found = recover(files)
    expected = [row for row in ROWS if row[1] <= commits]
    assert contents(files) == expected
    assert (found.head, found.last_index) == (expected[-1][0], commits)
    assert found.position == f"p{commits}"
    assert len(files.bytes_of(found.segments[-1].name)) == found.end
    again = recover(files)
    assert (again.head, again.end) == (found.head, found.end)


@pytest.mark.parametrize("name", REFUSED)
def test_a_log_is_refused_by_name_after(whole, name):
    corrupt, segment, place = REFUSED[name]
    files = whole.copy()
    corrupt(files)
    with pytest.raises(CorruptSegmentError) as caught:
        recover(files)
    assert caught.value.segment == segment
    assert place is None or caught.value.place == place
    assert place == 0 or caught.value.place in frames_of(whole, NEWEST)


def test_a_segment_missing_in_the_middle_is_named():
    files = MemoryFiles()
    log = PlainLog(files, replace(SMALL, segment_bytes_max=1))
    for one in DRAFTS[:4]:
        log.append(one)
    files.remove(segment_name(Index(2)))
    with pytest.raises(CorruptSegmentError) as caught:
        recover(files)
    assert caught.value.segment == segment_name(Index(2))
    files.remove(segment_name(Index(1)))
    found = recover(files)
    assert found.horizon == log.found.horizon + len(DRAFTS[0]) + len(DRAFTS[1])


def test_every_cut_of_the_last_frame_leaves_the_frames_before_it(whole):
    files = whole.copy()
    no_state(files)
    places = frames_of(files, NEWEST)
    data = files.bytes_of(NEWEST)
    for size in range(places[-2], places[-1]):
        for tail in (b"", bytes(100)):
            if (data[:size] + tail).startswith(data[: places[-1]]):
                continue  # only padding was cut, and is there again
            files.put(NEWEST, data[:size] + tail)
            found = recover(files)
            assert (found.last_index, found.end) == (6, places[-2])
            assert len(files.bytes_of(NEWEST)) == places[-2]
    assert contents(files) == [row for row in ROWS if row[1] <= 6]


@pytest.mark.parametrize("with_state", [True, False], ids=["with the state", "without the state"])
def test_every_flipped_bit_of_the_newest_segment_cuts_the_tail_or_is_refused(whole, with_state):
    files = whole.copy()
    if not with_state:
        no_state(files)
    data = files.bytes_of(NEWEST)
    end = frames_of(files, NEWEST)[-1]
    refused = []
    for bit in range(0, len(data) * 8, 3):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        files.put(NEWEST, bytes(damaged))
        try:
            found = examine(files)
        except CorruptSegmentError as error:
            refused.append(error.segment)
            continue
        assert found.last_index == (7 if bit // 8 >= end else 6)
        assert bit // 8 >= end or not with_state, "what was synced may not be cut"
    assert len(refused) > 100
    assert set(refused) == {NEWEST}


@pytest.mark.parametrize("segment", [FIRST, NEWEST])
def test_every_flipped_bit_gives_the_right_changes_or_an_error_when_read(whole, segment):
    data = whole.bytes_of(segment)
    files = whole.copy()
    no_state(files)
    refused = []
    for bit in range(0, len(data) * 8, 29):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        files.put(segment, bytes(damaged))
        try:
            rows = contents(files)
        except CorruptSegmentError as error:
            refused.append(error.segment)
        else:
            assert rows == ROWS[: len(rows)]
    assert set(refused) == {segment}


def test_the_position_comes_from_the_segment_before_when_the_newest_has_no_frames(whole):
    files = whole.copy()
    SURVIVED["all frames of the newest segment cut, and no state"][0](files)
    files.remove(index_name(Index(1)))
    found = recover(files)
    assert (found.position, found.last_index) == ("p5", 5)
    log = PlainLog(files)
    log.append(DRAFTS[5])
    assert contents(files) == [row for row in ROWS if row[1] <= 6]


def test_an_old_segment_that_lost_its_last_frame_is_not_taken_for_the_end(whole):
    files = whole.copy()
    SURVIVED["all frames of the newest segment cut, and no state"][0](files)
    data = files.bytes_of(FIRST)
    files.put(FIRST, data[: frames_of(files, FIRST)[-2]])
    files.remove(index_name(Index(1)))
    with pytest.raises(CorruptSegmentError, match="last commits are missing"):
        recover(files)


def test_a_torn_tail_stays_when_somebody_only_looks(whole):
    files = whole.copy()
    SURVIVED["bytes of the next frame behind the end"][0](files)
    before = files.bytes_of(NEWEST)
    assert examine(files).head == len(ROWS)
    assert files.bytes_of(NEWEST) == before


def test_an_empty_directory_is_an_empty_log():
    found = recover(MemoryFiles())
    assert (found.head, found.horizon, found.last_index, found.position) == (0, 1, 0, None)
