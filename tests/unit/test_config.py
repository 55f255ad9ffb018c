"""Facts about the configuration."""

import pytest

from tailrace.config import (
    SETTINGS,
    Config,
    QueryConfig,
    SourceConfig,
    load_config,
    parse_source,
)
from tailrace.config_file import line_of
from tailrace.interface.coordinode.options import ChangeStreamConfig, EdgeTable
from tailrace.interface.jimdb.options import JimdbConfig
from tailrace.model.errors import ConfigError
from tailrace.quantity import parse_duration_s, parse_size_bytes


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "tailrace.toml"
        path.write_text(text)
        return path

    return write


def test_without_anything_the_defaults_hold():
    assert load_config(None, {}, {}) == Config()


def test_flags_win_over_the_environment_and_that_over_the_file(file):
    path = file('host = "file"\nhttp_port = 1\ngrpc_port = 2\n')
    config = load_config(path, {"TAILRACE_HOST": "variable", "TAILRACE_HTTP_PORT": "3"}, {"host": "flag"})
    assert (config.host, config.http_port, config.grpc_port) == ("flag", 3, 2)


def test_every_setting_can_be_set_by_its_variable():
    queries = {
        "rows_max": 1,
        "bytes_max": "2MiB",
        "timeout": "3s",
        "log_timeout": "0.5s",
        "prepared_max": 4,
        "trackers_max": 5,
        "runs_max": 6,
        "inline_rows_max": 7,
        "inline_bytes_max": "8KiB",
        "delta_rows_max": 9,
    }
    values = {f"query.{name}": str(value) for name, value in queries.items()} | {
        "sources": "a=sqlite:///a.db sqlite:///b.db",
        "http_port": "1",
        "allowed_hosts": "a.example, *.b.example",
        "allowed_origins": "https://a.example,https://b.example:8443",
        "grpc_port": "2",
        "workers": "3",
        "capture.enabled": "false",
        "log.ring_changes": "64k",
        "log.compact": "false",
        "retention.events": "5",
        "retention.bytes": "1GiB",
        "retention.age": "1h",
        "auth.enabled": "true",
        "auth.tokens": "x, y",
        "auth.jwt_leeway": "5s",
        "auth.requests_per_s": "7.5",
        "auth.burst": "8",
        "auth.streams_max": "9",
        "auth.subscriptions_max": "10",
        "gateway.port": "0",
        "gateway.sql_write": "true",
        "coordinode.event_bytes": "1MiB",
        "coordinode.heartbeat_interval": "2s",
        "coordinode.strict_bytes": "none",
        "coordinode.consumers_max": "7",
        "jimdb.cluster_id": "3",
        "jimdb.ranges_max": "4",
        "jimdb.page_rows": "5",
        "jimdb.answer_bytes": "2MiB",
        "jimdb.log_wait": "1s",
        "jimdb.retained_bytes": "none",
        "jimdb.silence": "1h",
        "jimdb.registrations_max": "6",
        "logging.level": "debug",
        "logging.format": "json",
    }
    environment = {setting.variable: values.get(setting.path, "text") for setting in SETTINGS}
    config = load_config(None, environment, {})
    assert config.sources == {"a": SourceConfig("sqlite:///a.db"), "default": SourceConfig("sqlite:///b.db")}
    assert config.auth.enabled
    assert config.auth.tokens == ("x", "y")
    assert (config.auth.jwks_file, config.auth.requests_per_s, config.auth.burst) == ("text", 7.5, 8)
    assert (config.tls.cert, config.tls.key, config.tls.client_ca) == ("text", "text", "text")
    assert config.allowed_hosts == ("a.example", "*.b.example")
    assert config.allowed_origins == ("https://a.example", "https://b.example:8443")
    assert (config.data_dir, config.host, config.metadata_url) == ("text", "text", "text")
    assert config.workers == 3
    assert (config.capture.enabled, config.log.ring_changes, config.log.compact) == (False, "64k", False)
    assert (config.retention.events, config.retention.bytes, config.retention.age) == ("5", "1GiB", "1h")
    assert config.gateway.sql_write
    assert config.coordinode == ChangeStreamConfig("1MiB", "2s", "none", 7)
    assert config.jimdb == JimdbConfig(3, 4, 5, "2MiB", "1s", "none", "1h", 6, "text")
    assert config.query == QueryConfig(**queries)
    assert (config.logging.level, config.logging.format) == ("debug", "json")


def test_edge_tables_are_declared_in_the_file(file):
    path = file(
        """
        [sources.app]
        url = "sqlite:///app.db"
        [sources.app.edges.follows]
        type = "FOLLOWS"
        source_column = "a"
        target_column = "b"
        """
    )
    assert load_config(path, {}, {}).sources["app"].edges == {"follows": EdgeTable("a", "b", type="FOLLOWS")}


def test_variables_are_filled_into_the_file(file):
    path = file('[sources.app]\nurl = "sqlite:///${NAME}.db"\n')
    assert load_config(path, {"NAME": "shop"}, {}).sources["app"].url == "sqlite:///shop.db"


def test_variables_of_the_systems_whose_interfaces_we_have_are_read_and_ours_win(file):
    theirs = {"SKEINDB_CDC_RETENTION_EVENTS": "7"}
    assert load_config(None, theirs, {}).retention.events == "7"
    assert load_config(file("[retention]\nevents = 9"), theirs, {}).retention.events == "7"
    assert load_config(None, theirs | {"TAILRACE_RETENTION_EVENTS": "8"}, {}).retention.events == "8"
    with pytest.raises(ConfigError, match=r"^SKEINDB_CDC_RETENTION_EVENTS: "):
        load_config(None, {"SKEINDB_CDC_RETENTION_EVENTS": "some"}, {})


WRONG = [
    ("colour = 1", "colour"),
    ("[retention]\nsize = 1", "size"),
    ("http_port = 'x'", "http_port"),
    ("http_port = 70000", "http_port"),
    ("allowed_hosts = ['http://a.example']", "allowed_hosts"),
    ("allowed_origins = ['a.example']", "allowed_origins"),
    ("[log]\nring_changes = 'none'", "log.ring_changes"),
    ("[log]\nring_changes = 'many'", "log.ring_changes"),
    ("[capture]\nenabled = 'maybe'", "capture.enabled"),
    ("[retention]\nage = 'soon'", "retention.age"),
    ("[retention]\nbytes = '-1'", "retention.bytes"),
    ("[retention]\nevents = 0", "retention.events"),
    ("[query]\nrows_max = 0", "query.rows_max"),
    ("[query]\nruns_max = -1", "query.runs_max"),
    ("[query]\nbytes_max = 'none'", "query.bytes_max"),
    ("[query]\ntimeout = 'none'", "query.timeout"),
    ("[query]\nlog_timeout = 'soon'", "query.log_timeout"),
    ("[query]\nrow_max = 1", "row_max"),
    ("[auth]\nburst = 0", "auth.burst"),
    ("[auth]\nrequests_per_s = -1", "auth.requests_per_s"),
    ("[auth]\nrequests_per_s = nan", "auth.requests_per_s"),
    ("[auth]\njwt_leeway = 'long'", "auth.jwt_leeway"),
    ("[auth.principals.x]\ntenant = 'a'", "tokens"),
    ("[auth.principals.x]\ntokens = ['a']\ncolour = 1", "colour"),
    ("[tls]\ncert = 'x'", "tls.cert"),
    ("[tls]\nclient_ca = 'x'", "tls.client_ca"),
    (
        "[sources.a]\nurl = 'x'\n[sources.a.edges.t]\nsource_column = 's'\ntarget_column = 't'",
        "either type or type_column",
    ),
    (
        "[sources.a.edges.t]\nsource_column = ''\ntarget_column = 't'\ntype = 'T'\n[sources.a]\nurl = 'x'",
        "source_column",
    ),
    ("[coordinode]\nevent_bytes = 'none'", "coordinode.event_bytes"),
    ("[coordinode]\nheartbeat_interval = 'none'", "coordinode.heartbeat_interval"),
    ("[coordinode]\nstrict_bytes = 'much'", "coordinode.strict_bytes"),
    ("[coordinode]\nconsumers_max = 0", "coordinode.consumers_max"),
    ("[jimdb]\ncluster_id = -1", "jimdb.cluster_id"),
    ("[jimdb]\nranges_max = 0", "jimdb.ranges_max"),
    ("[jimdb]\npage_rows = 0", "jimdb.page_rows"),
    ("[jimdb]\nregistrations_max = 0", "jimdb.registrations_max"),
    ("[jimdb]\nanswer_bytes = 'none'", "jimdb.answer_bytes"),
    ("[jimdb]\nlog_wait = 'none'", "jimdb.log_wait"),
    ("[jimdb]\nretained_bytes = 'much'", "jimdb.retained_bytes"),
    ("[jimdb]\nsilence = 'long'", "jimdb.silence"),
    ("[logging]\nlevel = 'loud'", "logging.level"),
    ("[logging]\nformat = 'xml'", "logging.format"),
    ("[sources.'a b']\nurl = 'x'", "a b"),
    ("host = '${ABSENT}'", "ABSENT"),
    ("host", "TOML"),
]


@pytest.mark.parametrize(("text", "named"), WRONG, ids=[text for text, _ in WRONG])
def test_a_mistake_in_the_file_is_named(file, text, named):
    with pytest.raises(ConfigError, match=named):
        load_config(file(text), {}, {})


def test_principals_are_tables_of_the_file(file):
    path = file("""
        [auth.principals.reports]
        tokens = ["${TOKEN}"]
        tenant = "acme"
        role = "viewer"
        tables = ["shop.orders"]
        rows = { "shop.orders" = "customer_id = 7" }
    """)
    reports = load_config(path, {"TOKEN": "secret"}, {}).auth.principals["reports"]
    assert (reports.tokens, reports.tenant, reports.role) == (("secret",), "acme", "viewer")
    assert (reports.tables, reports.rows) == (("shop.orders",), {"shop.orders": "customer_id = 7"})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("http_prt = 1", "line 1: unknown key 'http_prt'; did you mean 'http_port'.; known are .*auth, capture, "),
        ("[log]\nring = 1", "line 2: unknown key 'log.ring'; known are compact, ring_changes"),
        ("[auth]\nprincipal = 1", "unknown key 'auth.principal'; did you mean 'principals'.; known are .*principals"),
        ("[sources.shop]\nurl = 'sqlite:///a.db'\nuri = 1", r"unknown key 'sources\[...\].uri'$"),
        ("http_port = 'a'", "http_port: 'a' is not a whole number"),
    ],
)
def test_what_is_wrong_in_a_file_is_told_with_its_name(file, text, told):
    with pytest.raises(ConfigError, match=rf"tailrace\.toml(, |: ).*{told}"):
        load_config(file(text), {}, {})


def test_an_unknown_variable_is_an_error():
    with pytest.raises(ConfigError, match="TAILRACE_PROT"):
        load_config(None, {"TAILRACE_PROT": "1"}, {})


def test_the_clients_variables_mean_nothing_to_the_server():
    assert load_config(None, {"TAILRACE_SERVER": "http://h", "TAILRACE_TOKEN": "t"}, {}) == Config()


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match="cannot read"):
        load_config(tmp_path / "absent.toml", {}, {})


@pytest.mark.parametrize(
    ("text", "name", "url"),
    [
        ("sqlite:///a.db", "default", "sqlite:///a.db"),
        ("shop=sqlite:///a.db", "shop", "sqlite:///a.db"),
        ("postgresql://h/db?a=b", "default", "postgresql://h/db?a=b"),
    ],
)
def test_a_source_is_a_name_and_a_url_or_a_url_alone(text, name, url):
    assert parse_source(text) == (name, SourceConfig(url))


def test_a_bad_source_name_is_refused():
    with pytest.raises(ConfigError, match="source name"):
        parse_source("a b=sqlite:///a.db")


@pytest.mark.parametrize(
    ("text", "size"),
    [("1", 1), (65536, 65536), ("1k", 1024), ("1KB", 1000), ("1.5 MiB", 1572864), ("4GiB", 4 << 30), ("none", None)],
)
def test_sizes(text, size):
    assert parse_size_bytes(text) == size


@pytest.mark.parametrize(
    ("text", "seconds"), [("45s", 45), ("90m", 5400), ("0.5h", 1800), ("7D", 604800), ("none", None)]
)
def test_durations(text, seconds):
    assert parse_duration_s(text) == seconds


def test_sinks_are_tables_of_the_file_and_keep_their_secrets_to_themselves(file):
    text = '[sinks.out]\nurl = "redis://:${SECRET}@h/0"\nsource = "shop"\non_refused = "wait"\n'
    (made,) = load_config(file(text), {}, {}).sinks.values()
    assert (made.url, made.source, str(made.on_refused)) == ("redis://:${SECRET}@h/0", "shop", "wait")


def test_a_sink_that_makes_no_sense_is_refused(file):
    with pytest.raises(ConfigError, match="sink out"):
        load_config(file('[sinks.out]\nurl = "delta:///lake"\n'), {}, {})


@pytest.mark.parametrize(
    ("environment", "flags", "told"),
    [
        ({"TAILRACE_HTTP_PORT": "abc"}, {}, "TAILRACE_HTTP_PORT: 'abc' is not a whole number"),
        ({"TAILRACE_RETENTION_AGE": "soon"}, {}, "TAILRACE_RETENTION_AGE: "),
        ({}, {"query.rows_max": "many"}, "--query-rows-max: 'many' is not a whole number"),
        ({}, {"logging.level": "loud"}, "--logging-level: 'loud' is not debug"),
        ({"TAILRACE_HTTP_PORT": "1"}, {"http_port": 70000}, "--http-port: 70000 is not a port"),
        ({}, {"workers": 65}, "--workers: 65 is not a number of processes (0 to 64)"),
        ({"TAILRACE_AUTH": "maybe"}, {}, "TAILRACE_AUTH: 'maybe' is not true or false"),
    ],
)
def test_a_wrong_value_is_told_with_the_variable_or_flag_that_it_came_from(environment, flags, told):
    with pytest.raises(ConfigError) as wrong:
        load_config(None, environment, flags)
    assert str(wrong.value).startswith(told)


def test_an_unknown_variable_is_told_with_the_one_that_was_meant():
    with pytest.raises(ConfigError, match=r"TAILRACE_HTTPPORT: did you mean TAILRACE_HTTP_PORT.$"):
        load_config(None, {"TAILRACE_HTTPPORT": "1"}, {})
    with pytest.raises(ConfigError, match=r"TAILRACE_QQQQ: docs/reference/settings.md lists all"):
        load_config(None, {"TAILRACE_QQQQ": "1"}, {})


FILE = """http_port = 1

[retention]  # how long
age = '1d'
# [query]
[ query ]
  rows_max = 5
[logging]
"level" = 1
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [("http_port", 1), ("retention.age", 4), ("query", 6), ("query.rows_max", 7), ("logging.level", 9), ("age", None)],
)
def test_the_line_of_a_file_is_found(path, line):
    assert line_of(FILE, path) == line


def test_options_of_a_source_are_in_its_table_or_in_its_url(file):
    path = file("[sources.a]\nurl = 'sqlite:///a.db?poll_interval=1s'\n[sources.a.options]\nbusy_timeout = '10s'\n")
    source = load_config(path, {}, {}).sources["a"]
    assert source == SourceConfig("sqlite:///a.db?poll_interval=1s", options={"busy_timeout": "10s"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[sources.a]\nurl = 'sqlite:///a.db'\n[sources.a.options]\nbusytimeout = '1s'\n",
            r"line 4: sources.a.options.busytimeout: option 'busytimeout' is unknown; did you mean 'busy_timeout'",
        ),
        (
            "[sources.a]\nurl = 'sqlite:///a.db'\noptions.busy_timeout = 'soon'\n",
            r"line 3: sources.a.options.busy_timeout: option 'busy_timeout': 'soon' is not a duration",
        ),
        (
            "[sources.a]\nurl = 'sqlite:///a.db?slot=1'\n",
            r"line 2: sources.a.url: option 'slot' is unknown",
        ),
        ("[sources.a]\nurl = 'mysql://h/d'\n", r"line 2: sources.a.url: this version cannot capture MySQL yet"),
    ],
)
def test_what_is_wrong_with_a_source_is_found_when_the_file_is_read(file, text, message):
    with pytest.raises(ConfigError, match=message):
        load_config(file(text), {}, {})


ONE = "[sources.a]\nurl = 'sqlite:///a.db'\noptions.busy_timeout = '1s'\n"
TWO = f"{ONE}[sources.b]\nurl = 'sqlite:///b.db?trim_interval=1s'\n"


@pytest.mark.parametrize(
    ("text", "given", "options"),
    [
        (ONE, ["poll_interval=2s"], {"a": {"busy_timeout": "1s", "poll_interval": "2s"}}),
        (ONE, ["a.busy_timeout=2s"], {"a": {"busy_timeout": "2s"}}),
        (TWO, ["b.poll_interval=2s"], {"a": {"busy_timeout": "1s"}, "b": {"poll_interval": "2s"}}),
        (
            TWO,
            ["a.busy_timeout=2s", "b.wal_bytes_max=8MiB"],
            {"a": {"busy_timeout": "2s"}, "b": {"wal_bytes_max": "8MiB"}},
        ),
    ],
)
def test_options_of_sources_by_flag_win_over_those_in_the_file(file, text, given, options):
    config = load_config(file(text), {}, {"source_options": given})
    assert {name: source.options for name, source in config.sources.items()} == options


def test_options_by_flag_go_to_sources_of_flags_and_variables_too():
    flags = {"sources": {"a": {"url": "sqlite:///a.db"}}, "source_options": ["busy_timeout=2s"]}
    assert load_config(None, {}, flags).sources["a"].options == {"busy_timeout": "2s"}
    given = load_config(None, {"TAILRACE_SOURCE": "sqlite:///a.db"}, {"source_options": ["busy_timeout=2s"]})
    assert given.sources["default"].options == {"busy_timeout": "2s"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["a.busytimeout=1s"], " a.busytimeout: option 'busytimeout' is unknown; did you mean 'busy_timeout'"),
        (["a.poll_interval=soon"], " a.poll_interval: option 'poll_interval': 'soon' is not a duration"),
        (["b.trim_interval=2s"], " b.trim_interval: option 'trim_interval': it is in the URL as well; give it once"),
        (["x=1s"], ": option 'x': write SOURCE.x=VALUE, where SOURCE is a or b"),
        (["c.poll_interval=1s"], ": option 'c.poll_interval': there is no source 'c'"),
        (["a.poll_interval=1s", "a.poll_interval=1s"], ": option 'a.poll_interval': it is given twice"),
        (["a.poll_interval"], ": option 'a.poll_interval': write SOURCE.OPTION=VALUE"),
        (["=1s"], ": option '': write SOURCE.OPTION=VALUE"),
        ([".x=1s"], ": option '.x': write SOURCE.OPTION=VALUE"),
    ],
)
def test_a_wrong_option_by_flag_names_the_flag(file, given, message):
    with pytest.raises(ConfigError) as caught:
        load_config(file(TWO), {}, {"source_options": given})
    assert str(caught.value).startswith(f"--source-option{message}")


def test_the_name_of_a_source_that_is_nearly_right_is_said(file):
    with pytest.raises(ConfigError, match="there is no source 'shpo'; did you mean 'shop'"):
        load_config(file("[sources.shop]\nurl = 'sqlite:///a.db'\n"), {}, {"source_options": ["shpo.busy_timeout=1s"]})


def test_without_a_source_there_is_nothing_that_could_have_an_option():
    with pytest.raises(ConfigError, match="there is no source that could have it"):
        load_config(None, {}, {"source_options": ["busy_timeout=1s"]})


def test_what_is_wrong_with_a_source_of_a_flag_or_a_variable_names_that():
    wrong = {"a": {"url": "sqlite:///a.db?slot=1"}}
    with pytest.raises(ConfigError, match=r"^--source: sources.a.url: option 'slot' is unknown"):
        load_config(None, {}, {"sources": wrong})
    with pytest.raises(ConfigError, match=r"^TAILRACE_SOURCE: sources.a.url: there is no source for 'oracle' URLs"):
        load_config(None, {"TAILRACE_SOURCE": "a=oracle://h/d"}, {})
