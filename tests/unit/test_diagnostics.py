"""Facts about diagnostics."""

import io
import json
import logging

import pytest

from tailrace.diagnostics import JsonFormatter, RepeatFilter, TextFormatter, set_up_logging


@pytest.fixture
def record():
    record = logging.makeLogRecord(
        {"name": "tailrace.log", "levelname": "INFO", "msg": "segment sealed", "created": 0.5}
    )
    record.shard = 0
    return record


def test_a_json_line_has_the_message_and_its_fields(record):
    line = json.loads(JsonFormatter().format(record))
    assert (line["level"], line["logger"], line["message"], line["shard"]) == (
        "info",
        "tailrace.log",
        "segment sealed",
        0,
    )


def test_a_line_of_text_ends_with_the_fields(record):
    assert TextFormatter().format(record).endswith("info    segment sealed shard=0")


@pytest.mark.parametrize("formatter", [JsonFormatter(), TextFormatter()])
def test_an_exception_is_shown(record, formatter):
    try:
        raise KeyError("name")
    except KeyError as error:
        record.exc_info = (KeyError, error, error.__traceback__)
    assert "KeyError" in formatter.format(record)


def test_off_a_terminal_auto_means_json(monkeypatch):
    monkeypatch.setattr(logging, "_loggerClass", logging.Logger)  # PySpark may leave its own class of loggers behind
    logger = logging.getLogger("tailrace.made_by_this_test_alone")
    before = logging.getLogger().handlers[:], logging.getLogger().level
    stream = io.StringIO()
    try:
        set_up_logging("warning", "auto", stream)
        logger.warning("full", extra={"bytes": 5})
        logger.info("not shown")
    finally:
        logging.getLogger().handlers[:], logging.getLogger().level = before
    (line,) = stream.getvalue().splitlines()
    assert json.loads(line)["bytes"] == 5


def line(message, level=logging.INFO):
    return logging.makeLogRecord({"name": "tailrace", "msg": message, "levelno": level})


def test_a_message_that_repeats_is_left_out_and_the_next_line_says_how_often():
    now_s = [0.0]
    repeats = RepeatFilter(most=3, window_s=10.0, now_s=lambda: now_s[0])
    assert [repeats.filter(line("subscription made")) for _ in range(5)] == [True, True, True, False, False]
    assert repeats.filter(line("subscription closed"))
    now_s[0] = 10.0
    following = line("subscription made")
    assert repeats.filter(following)
    assert following.left_out == 2
    assert not hasattr(line("subscription made"), "left_out")


def test_an_error_is_never_left_out():
    repeats = RepeatFilter(most=1, window_s=10.0, now_s=lambda: 0.0)
    assert all(repeats.filter(line("sink failed", logging.ERROR)) for _ in range(5))


@pytest.mark.parametrize("formatter", [JsonFormatter(), TextFormatter()])
def test_fields_are_shown_as_ours_by_a_logger_of_the_class_of_pyspark(formatter):
    kind = pytest.importorskip("pyspark.logger").PySparkLogger
    shown = []
    for logger in (kind("tailrace.x"), logging.Logger("tailrace.x")):  # noqa: LOG001
        records = []
        logger.handlers = [handler := logging.Handler()]
        handler.emit = records.append
        logger.warning("segment sealed", extra={"through": 9})
        records[0].created = records[0].msecs = 0
        shown.append(formatter.format(records[0]))
    assert shown[0] == shown[1]
    assert "context" not in shown[0]
