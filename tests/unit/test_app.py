"""Facts about how the composition root reads the configuration."""

from tailrace.app import log_options, pressure_changes, query_options
from tailrace.config import Config, QueryConfig, RetentionConfig
from tailrace.subscription.query.options import QueryOptions


def test_without_settings_the_options_are_the_defaults():
    assert query_options(Config()) == QueryOptions()


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
    assert query_options(Config(query=config)) == QueryOptions(
        rows_max=1,
        bytes_max=2048,
        run_timeout_s=3.0,
        barrier_timeout_s=4.0,
        prepared_max=5,
        trackers_max=6,
        inline_rows_max=7,
        inline_bytes_max=8192,
        delta_rows_max=9,
    )


def test_retention_reaches_the_log():
    options = log_options(Config(retention=RetentionConfig("4k", "none", "1h")))
    assert (options.retention_changes, options.retention_bytes, options.retention_age_s) == (4096, None, 3600.0)


def test_pressure_has_a_scale_unless_it_is_switched_off_and_the_log_forgets_only_when_asked():
    cases = {None: (None, 4096), "100": (100, 100), "none": (None, None)}
    for events, (kept, scale) in cases.items():
        config = Config(retention=RetentionConfig(events))
        assert (log_options(config).retention_changes, pressure_changes(config)) == (kept, scale)
