"""What a run tells of its progress, for people and for programs."""

import json

import pytest

from tailrace.cli.pipeline_watch import JsonWatcher, TextWatcher


@pytest.mark.parametrize(
    ("rows", "total", "rows_per_s", "shown", "left_s"),
    [
        (250, 1000, 10.0, " 25%  250 of about 1,000 rows  10/s  1 min left", 75),
        (250, 1000, 50.0, " 25%  250 of about 1,000 rows  50/s  15 s left", 15),
        (0, 1_000_000, 100.0, "  0%  0 of about 1,000,000 rows  100/s  2 h 47 min left", 10_000),
        (250, 1000, 0.0, " 25%  250 of about 1,000 rows", None),  # nobody knows yet
        (1000, 1000, 0.0, "100%  1,000 of about 1,000 rows  0/s  0 s left", 0),
    ],
)
def test_copying_is_shown_with_its_rate_and_the_time_left(capsys, rows, total, rows_per_s, shown, left_s):
    TextWatcher().copied(rows, total, rows_per_s)
    JsonWatcher().copied(rows, total, rows_per_s)
    told = capsys.readouterr()
    assert told.err.rstrip("\n").endswith(shown)
    event = {"event": "copied", "rows": rows, "total": total, "rows_per_s": rows_per_s, "left_s": left_s}
    assert json.loads(told.out) == event


def test_where_sparks_pages_are_is_told(capsys):
    TextWatcher("lake").spark_ui("http://127.0.0.1:4040")
    JsonWatcher().spark_ui("http://127.0.0.1:4040")
    told = capsys.readouterr()
    assert told.err == "lake: Spark UI: http://127.0.0.1:4040\n"
    assert json.loads(told.out) == {"event": "spark_ui", "url": "http://127.0.0.1:4040"}
