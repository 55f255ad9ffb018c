"""Facts about diagnostics."""

import io
import json
import logging

import pytest

from tailrace.diagnostics import JsonFormatter, TextFormatter, set_up_logging


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
