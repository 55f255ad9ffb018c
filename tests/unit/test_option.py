"""Facts about how the tables of the configuration become options."""

from tailrace.config import LogConfig, QueryConfig, RetentionConfig
from tailrace.log.options import LogOptions, log_options
from tailrace.subscription.pressure import pressure_changes
from tailrace.subscription.query.options import QueryOptions, query_options


def test_without_settings_the_options_are_the_defaults():
    assert query_options(QueryConfig()) == QueryOptions()
    assert log_options(LogConfig(), RetentionConfig()) == LogOptions()


def test_each_limit_of_queries_reaches_its_option():
    config = QueryConfig(
        rows_max=1,
        bytes_max="2KiB",
        timeout="3s",
        log_timeout="4s",
        prepared_max=5,
        trackers_max=6,
        inline_rows_max=7,
        inline_bytes_max="8KiB",
        delta_rows_max=9,
    )
    assert query_options(config, capture_enabled=False) == QueryOptions(
        rows_max=1,
        bytes_max=2048,
        run_timeout_s=3.0,
        barrier_timeout_s=4.0,
        prepared_max=5,
        trackers_max=6,
        inline_rows_max=7,
        inline_bytes_max=8192,
        delta_rows_max=9,
        capture_enabled=False,
    )


def test_retention_and_ring_reach_the_log():
    options = log_options(LogConfig("8k"), RetentionConfig("4k", "none", "1h"))
    assert (options.retention_changes, options.retention_bytes, options.retention_age_s) == (4096, None, 3600.0)
    assert options.ring_changes_max == 8192


def test_pressure_has_a_scale_unless_it_is_switched_off_and_the_log_forgets_only_when_asked():
    cases = {None: (None, 4096), "100": (100, 100), "none": (None, None)}
    for events, (kept, scale) in cases.items():
        options = log_options(LogConfig(), RetentionConfig(events))
        assert (options.retention_changes, pressure_changes(events)) == (kept, scale)
