"""Facts about the file that takes what Spark prints."""

import os

import pytest

from serving import wait_until
from tailrace.pipeline import spark_log
from tailrace.pipeline.spark_log import SparkLog


def printed(log, text):
    output = log.open()
    with os.fdopen(output, "wb") as file:
        file.write(text)


def test_what_is_printed_is_appended_and_its_newest_lines_are_known(tmp_path):
    path = tmp_path / "new" / "spark.log"
    log = SparkLog(path)
    printed(log, b"one\ntwo\n")
    wait_until(lambda: log.last() == ["one", "two"], "two lines")
    other = SparkLog(path)
    printed(other, b"three\xff\nfour")
    wait_until(lambda: path.read_bytes() == b"one\ntwo\nthree\xff\nfour", "all of it")
    assert other.last() == ["three\ufffd"]
    assert str(log) == str(path)
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("writers", [1, 2])
def test_two_files_of_bounded_size_is_all_there_is(tmp_path, monkeypatch, writers):
    monkeypatch.setattr(spark_log, "_FILE_BYTES_MAX", 1000)
    monkeypatch.setattr(spark_log, "_READ_BYTES", 100)
    path = tmp_path / "spark.log"
    logs = [SparkLog(path) for _ in range(writers)]
    for log in logs:
        printed(log, b"x" * 99 + b"\n" + b"y" * 99 * 100 + b"\nend\n")
    wait_until(lambda: all(log.last()[-1:] == ["end"] for log in logs), "all taken")
    wait_until(lambda: path.exists(), "the newer file")
    sizes = {file.name: file.stat().st_size for file in tmp_path.iterdir()}
    assert sorted(sizes) == ["spark.log", "spark.log.1"]
    assert max(sizes.values()) <= 1000 + 100 * writers
