"""The configuration: one TOML file, the environment, flags; later ones win. Decoded once, strictly.

`SETTINGS` lists every setting that the environment and flags can set; the file takes the same names as nested tables.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field, structs

from tailrace.access.options import AuthConfig
from tailrace.config_file import SettingProblem, located, problem_of, read_file
from tailrace.delivery.site import check_site
from tailrace.delivery.tls import TlsConfig
from tailrace.interface.coordinode.options import ChangeStreamConfig, EdgeTable
from tailrace.interface.jimdb.options import JimdbConfig, check_jimdb
from tailrace.log.options import LogConfig, RetentionConfig
from tailrace.message.sink import SinkConfig, read_sinks
from tailrace.model.errors import ConfigError, SourceOptionError
from tailrace.quantity import parse_duration_s, parse_size_bytes
from tailrace.sources import IN_URL, SOURCE_OPTION, resolve
from tailrace.subscription.query.options import QueryConfig

__all__ = [
    "SETTINGS",
    "AuthConfig",
    "CaptureConfig",
    "Config",
    "GatewayConfig",
    "LogConfig",
    "LoggingConfig",
    "QueryConfig",
    "RetentionConfig",
    "Setting",
    "SinkConfig",
    "SourceConfig",
    "TlsConfig",
    "data_directory",
    "load_config",
    "parse_source",
    "split_list",
]

_SOURCE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_PREFIX = "TAILRACE_"
_ALIASES = {"SKEINDB_CDC_RETENTION_EVENTS": "retention.events"}
"""Variables of the systems whose interfaces we have, for people who come from there. Our own variable wins."""

_WORKERS_MAX = 64

_CLIENT_VARIABLES = frozenset({"TAILRACE_SERVER", "TAILRACE_TOKEN"})
"""Read by the commands that call a server; they mean nothing to the server itself."""


class SourceConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """One upstream database, and which of its tables hold edges of a graph, for change streams.

    `options` are those of its kind; each is here or in the query of the URL.
    """

    url: str
    options: dict[str, Any] = {}
    edges: dict[str, EdgeTable] = {}


class CaptureConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Whether changes are captured. Where they are not, every interface says so to whoever asks for changes."""

    enabled: bool = True


class GatewayConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The WebSocket gateway, on the HTTP port or on a port of its own; port 0 switches it off.

    With `sql_write` its SQL may write to configured sources, not only to the embedded one.
    """

    port: int | None = None
    sql_write: bool = False


class LoggingConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Diagnostics on standard error. `auto` is text on a terminal and JSON lines otherwise."""

    level: str = "info"
    format: str = "auto"


class Config(Struct, frozen=True, forbid_unknown_fields=True):
    """All settings of `tailrace serve`."""

    data_dir: str = "tailrace-data"
    host: str = "127.0.0.1"
    http_port: int = 8080
    grpc_port: int = 50051
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    metadata_url: str = ""
    workers: int = 0
    sources: dict[str, SourceConfig] = field(default_factory=dict)
    capture: CaptureConfig = CaptureConfig()
    log: LogConfig = LogConfig()
    retention: RetentionConfig = RetentionConfig()
    query: QueryConfig = QueryConfig()
    auth: AuthConfig = AuthConfig()
    tls: TlsConfig = TlsConfig()
    coordinode: ChangeStreamConfig = ChangeStreamConfig()
    jimdb: JimdbConfig = JimdbConfig()
    gateway: GatewayConfig = GatewayConfig()
    logging: LoggingConfig = LoggingConfig()
    sinks: dict[str, SinkConfig] = field(default_factory=dict)
    secrets_file: str = ""


class Setting(Struct, frozen=True):
    """One setting by its path in the file. `flag` and `variable` say how to set it elsewhere."""

    path: str
    describe: str
    secret: bool = False
    """Whether its value is shown nowhere. It has no flag: command lines can be read by others."""

    @property
    def flag(self) -> str:
        """Return the command-line flag."""
        return _FLAGS.get(self.path, "--" + self.path.replace(".", "-").replace("_", "-"))

    @property
    def variable(self) -> str:
        """Return the environment variable."""
        return _VARIABLES.get(self.path, _PREFIX + self.path.replace(".", "_").upper())


_FLAGS = {"sources": "--source", "auth.enabled": "--auth", "capture.enabled": "--capture", "gateway.port": "--ws-port"}
_VARIABLES = {"sources": "TAILRACE_SOURCE", "auth.enabled": "TAILRACE_AUTH"}

SETTINGS = (
    Setting("data_dir", "Directory of the log, the metadata and the embedded database."),
    Setting("host", "Address to listen on."),
    Setting("http_port", "Port of the HTTP interface; 0 takes a free one."),
    Setting("grpc_port", "Port of the gRPC interface; 0 takes a free one."),
    Setting("allowed_hosts", "Names that callers may call the server by, separated by commas; '*' for any."),
    Setting("allowed_origins", "Origins of web pages that may call, separated by commas; '*' for any."),
    Setting("metadata_url", "Metadata database; by default an SQLite file in the data directory."),
    Setting("workers", "Processes that deliver streams, beside the one that captures; 0 delivers in that one."),
    Setting("sources", "NAME=URL of a source, or a URL alone for the name 'default'. May be given more than once."),
    Setting("capture.enabled", "Capture changes; without, only keys, values and statements are served."),
    Setting("log.ring_changes", "Keep this many of the newest changes in memory."),
    Setting("log.compact", "Rewrite sealed segments of small frames in large ones, in the background."),
    Setting("retention.events", "Keep at most this many changes, or 'none'; also the scale of back-pressure."),
    Setting("retention.bytes", "Keep at most this much log, e.g. 500MB or 4GiB, or 'none'."),
    Setting("retention.age", "Keep changes this long, e.g. 90m, 12h or 7d, or 'none'."),
    Setting("query.rows_max", "Most rows in the result of a query."),
    Setting("query.bytes_max", "Most bytes in the result of a query, e.g. 8MiB."),
    Setting("query.timeout", "Longest run of a query, waiting for its turn included, e.g. 5s."),
    Setting("query.log_timeout", "Longest wait for the log before a query is run instead of answered with 304."),
    Setting("query.prepared_max", "Most prepared queries."),
    Setting("query.trackers_max", "Most queries with arguments that are followed at one time."),
    Setting("query.runs_max", "Most queries of one source that run at one time."),
    Setting("query.inline_rows_max", "Most rows that an event carries along."),
    Setting("query.inline_bytes_max", "Most bytes of rows that an event carries along."),
    Setting("query.delta_rows_max", "Most rows of a result that is kept to tell how the next one differs."),
    Setting("auth.enabled", "Ask every caller for credentials."),
    Setting("auth.tokens", "Keys that may do everything, separated by commas.", secret=True),
    Setting("auth.key_pepper", "Secret under which API keys are hashed.", secret=True),
    Setting("auth.jwt_secret", "Secret of web tokens that are signed with HS256.", secret=True),
    Setting("auth.jwt_secret_file", "File that holds the secret of web tokens that are signed with HS256."),
    Setting("auth.jwks_file", "JWKS file with the public keys of web tokens that are signed with RS256."),
    Setting("auth.jwt_issuer", "The iss that web tokens must have."),
    Setting("auth.jwt_audience", "The aud that web tokens must have."),
    Setting("auth.jwt_leeway", "How long a web token lives on after its exp, e.g. 60s, or 'none'."),
    Setting("auth.requests_per_s", "Calls that each principal may make a second, in the long run."),
    Setting("auth.burst", "Calls that each principal may make at once."),
    Setting("auth.streams_max", "Streams that each principal may have open."),
    Setting("auth.subscriptions_max", "Subscriptions that each principal may own."),
    Setting("tls.cert", "Certificate chain of both ports, in PEM."),
    Setting("tls.key", "Private key of the certificate, in PEM."),
    Setting("tls.client_ca", "Certificates of those who sign certificates of clients; then clients must have one."),
    Setting("coordinode.event_bytes", "Largest event of a change stream; a larger commit is sent as several."),
    Setting("coordinode.heartbeat_interval", "How often a consumer with an open change stream is heard."),
    Setting("coordinode.strict_bytes", "Log that is kept for a consumer with strict retention, or 'none'."),
    Setting("coordinode.consumers_max", "Consumers of change streams that may live at one time."),
    Setting("jimdb.cluster_id", "Number of the cluster that the server is, for pullers."),
    Setting("jimdb.ranges_max", "Ranges that a table is divided into when pullers first ask for it."),
    Setting("jimdb.page_rows", "Most rows, or changes, in one answer to a puller."),
    Setting("jimdb.answer_bytes", "Keys and values in one answer to a puller; one row may be larger."),
    Setting("jimdb.log_wait", "How long CdcPullLog waits for a change, e.g. 5s."),
    Setting("jimdb.retained_bytes", "Log that is kept for a puller, or 'none'."),
    Setting("jimdb.silence", "How long the log is kept for a puller that is not heard, e.g. 7d, or 'none'."),
    Setting("jimdb.registrations_max", "Pullers that may be registered at one time, each with a range."),
    Setting("jimdb.server_url", "Where workers of subscribed pipelines find the server; its own address by default."),
    Setting("gateway.port", "Port of the WebSocket gateway, by default the HTTP port; 0 switches the gateway off."),
    Setting("gateway.sql_write", "Let SQL over the WebSocket gateway write to configured sources."),
    Setting("secrets_file", "File with what ${NAME} in the URLs of sinks stands for, beside the environment."),
    Setting("logging.level", "debug, info, warning or error."),
    Setting("logging.format", "text, json or auto."),
)


def load_config(file: Path | None, environment: Mapping[str, str], flags: Mapping[str, Any]) -> Config:
    """Return the configuration of a file, the environment and flags; flags win, then the environment.

    `flags` maps setting paths to values; None means "not given". Its `source_options` are texts, each
    `SOURCE.OPTION=VALUE`, or `OPTION=VALUE` where there is one source: they win over the options in the file.

    Raises:
        ConfigError: A key, variable or value is wrong; the message names it.
    """
    tree = read_file(file, environment) if file else {}
    origins: dict[str, str] = {}
    """The variable or flag that set a path."""
    for name, path in (*_ALIASES.items(), *_variables(environment)):
        if name in environment:
            _put(tree, path, _from_text(path, environment[name]))
            origins[path] = name
    for path, value in flags.items():
        if value is not None and path != "source_options":
            _put(tree, path, value)
            origins[path] = _flag_of(path)
    for path, value in _source_options(flags.get("source_options") or (), tree.get("sources", {})):
        _put(tree, path, value)
        origins[path] = f"{SOURCE_OPTION} {path.removeprefix('sources.').replace('.options.', '.')}"
    sinks = read_sinks(tree.pop("sinks", {}))
    try:
        config = structs.replace(msgspec.convert(tree, Config, strict=False), sinks=sinks)
    except msgspec.ValidationError as error:
        problem = problem_of(error, Config, tree)
        if any(setting.secret and setting.path == problem.path for setting in SETTINGS):
            problem = SettingProblem(problem.path, "it is not what it should be")  # without its value
        raise ConfigError(located(problem, origins, file)) from error
    try:
        _check(config)
    except ConfigError as error:
        raise ConfigError(located(SettingProblem(*_split(str(error))), origins, file)) from error
    return config


def _variables(environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the variables of ours that are set, each with the path of its setting.

    Raises:
        ConfigError: There is no setting for one; the message says which one was probably meant.
    """
    known = {setting.variable: setting.path for setting in SETTINGS}
    ours = [name for name in environment if name.startswith(_PREFIX) and name not in _CLIENT_VARIABLES]
    for name in ours:
        if name not in known:
            near = get_close_matches(name.removeprefix(_PREFIX), [one.removeprefix(_PREFIX) for one in known], 1)
            meant = f"did you mean {_PREFIX}{near[0]}?" if near else "docs/reference/settings.md lists all"
            raise ConfigError(f"unknown environment variable {name}: {meant}")
    return [(name, known[name]) for name in ours]


def _flag_of(path: str) -> str:
    return next((setting.flag for setting in SETTINGS if setting.path == path), path)


def _split(message: str) -> tuple[str, str]:
    """Return the path that the message of a check begins with, and the rest."""
    path, colon, reason = message.partition(": ")
    return (path, reason) if colon else ("", message)


def parse_source(text: str) -> tuple[str, SourceConfig]:
    """Return the name and the source of `NAME=URL`; the name is `default` where only a URL is given.

    Raises:
        ConfigError: The name has characters that a name cannot have.
    """
    head, equals, tail = text.partition("=")
    if not equals or "://" in head:
        return "default", SourceConfig(text)
    if not _SOURCE_NAME.fullmatch(head):
        raise ConfigError(f"source name {head!r}: use letters, digits, '-' and '_', at most 64 of them")
    return head, SourceConfig(tail)


def _source_options(texts: Sequence[str], sources: Any) -> list[tuple[str, str]]:
    """Return the path and the value of each option that a flag gives to a source.

    Raises:
        ConfigError: A text is malformed, given twice, or names no source.
    """
    known = list(sources) if isinstance(sources, Mapping) else []
    found: dict[str, str] = {}
    for text in texts:
        place, equals, value = text.partition("=")
        name, dot, option = place.rpartition(".")
        if not equals or not option or (dot and not name):
            raise SourceOptionError(place, ": write SOURCE.OPTION=VALUE", SOURCE_OPTION)
        if not dot:
            if not known:
                raise SourceOptionError(option, ": there is no source that could have it", SOURCE_OPTION)
            if len(known) > 1:
                reason = f": write SOURCE.{option}=VALUE, where SOURCE is {' or '.join(known)}"
                raise SourceOptionError(option, reason, SOURCE_OPTION)
            name = known[0]
        if name not in known:
            near = get_close_matches(name, known, 1)
            meant = f"; did you mean {near[0]!r}?" if near else ""
            raise SourceOptionError(place, f": there is no source {name[:64]!r}{meant}", SOURCE_OPTION)
        path = f"sources.{name}.options.{option}"
        if path in found:
            raise SourceOptionError(place, ": it is given twice", SOURCE_OPTION)
        found[path] = value
    return list(found.items())


def split_list(text: str) -> list[str]:
    """Return the items of a list that is written with commas."""
    return [item for item in (part.strip() for part in text.split(",")) if item]


def _from_text(path: str, text: str) -> Any:
    """Return what an environment variable's text means for a setting."""
    match path:
        case "sources":
            return {name: {"url": source.url} for name, source in map(parse_source, text.split())}
        case "auth.tokens" | "allowed_hosts" | "allowed_origins":
            return split_list(text)
        case _:
            return text


def _put(tree: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    for parent in parents:
        tree = tree.setdefault(parent, {})
        if not isinstance(tree, dict):
            raise ConfigError(f"configuration: {parent} is a table")
    tree[last] = value


def _check(config: Config) -> None:
    """Refuse what the types cannot: names, ports, sizes, words."""
    for name, source in config.sources.items():
        _check_edges(name, source)
        if not _SOURCE_NAME.fullmatch(name):
            raise ConfigError(f"sources.{name}: use letters, digits, '-' and '_', at most 64 of them")
        _check_source(name, source)
    _check_change_stream(config.coordinode)
    check_jimdb(config.jimdb)
    for path, port in (
        ("http_port", config.http_port),
        ("grpc_port", config.grpc_port),
        ("gateway.port", config.gateway.port or 0),
    ):
        if not 0 <= port <= 65535:
            raise ConfigError(f"{path}: {port} is not a port (0 to 65535)")
    if not 0 <= config.workers <= _WORKERS_MAX:
        raise ConfigError(f"workers: {config.workers} is not a number of processes (0 to {_WORKERS_MAX})")
    if config.retention.events is not None:
        _check_size("retention.events", config.retention.events)
    _check_size("retention.bytes", config.retention.bytes)
    _check_duration("retention.age", config.retention.age)
    if _check_size("log.ring_changes", config.log.ring_changes) is None:
        raise ConfigError("log.ring_changes: memory is not without a limit: give a number")
    _check_query(config.query)
    if config.logging.level not in {"debug", "info", "warning", "error"}:
        raise ConfigError(f"logging.level: {config.logging.level!r} is not debug, info, warning or error")
    if config.logging.format not in {"text", "json", "auto"}:
        raise ConfigError(f"logging.format: {config.logging.format!r} is not text, json or auto")
    check_site(config.allowed_hosts, config.allowed_origins)
    _check_auth(config.auth)
    if bool(config.tls.cert) != bool(config.tls.key) or (config.tls.client_ca and not config.tls.cert):
        raise ConfigError("tls.cert and tls.key: set both; tls.client_ca needs them")


def _check_auth(auth: AuthConfig) -> None:
    _check_duration("auth.jwt_leeway", auth.jwt_leeway)
    for name in ("requests_per_s", "burst", "streams_max", "subscriptions_max"):
        if not 0 < getattr(auth, name) < float("inf"):
            raise ConfigError(f"auth.{name}: {getattr(auth, name)} is not a number above 0")


def _check_size(path: str, text: str | int) -> int | None:
    try:
        return parse_size_bytes(text)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def _check_duration(path: str, text: str) -> float | None:
    try:
        return parse_duration_s(text)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def _check_edges(name: str, source: SourceConfig) -> None:
    for table, edges in source.edges.items():
        if not edges.source_column or not edges.target_column:
            raise ConfigError(f"sources.{name}.edges.{table}: name source_column and target_column")
        if bool(edges.type) == bool(edges.type_column):
            raise ConfigError(f"sources.{name}.edges.{table}: set either type or type_column")


def _check_source(name: str, source: SourceConfig) -> None:
    """Refuse a URL that no source has, and options that its kind does not have."""
    try:
        resolve(source.url, source.options)
    except SourceOptionError as error:
        if error.origin == IN_URL:
            raise ConfigError(f"sources.{name}.url: option {error.option!r}{error.reason}") from error
        raise ConfigError(f"sources.{name}.options.{error.option}: option {error.option!r}{error.reason}") from error
    except ConfigError as error:
        raise ConfigError(f"sources.{name}.url: {error}") from error


def _check_change_stream(settings: ChangeStreamConfig) -> None:
    required: dict[str, Callable[[], float | None]] = {
        "event_bytes": lambda: parse_size_bytes(settings.event_bytes),
        "heartbeat_interval": lambda: parse_duration_s(settings.heartbeat_interval),
        "strict_bytes": lambda: parse_size_bytes(settings.strict_bytes) or 1,
    }
    for path, parse in required.items():
        try:
            if parse() is None:
                raise ConfigError("there must be one")
        except ConfigError as error:
            raise ConfigError(f"coordinode.{path}: {error}") from error
    if settings.consumers_max < 1:
        raise ConfigError("coordinode.consumers_max must be at least 1")


def _check_query(query: QueryConfig) -> None:
    for name in QueryConfig.__struct_fields__:
        path, value = f"query.{name}", getattr(query, name)
        if name.endswith("timeout"):
            limit: float | None = _check_duration(path, value)
        elif name.endswith("bytes_max"):
            limit = _check_size(path, value)
        else:
            limit = value
        if limit is None or limit <= 0:
            raise ConfigError(f"{path}: a query has to have a limit of at least 1")


def data_directory(config: Config) -> Path:
    """Return the data directory as an absolute path.

    Raises:
        ConfigError: It is a URL. Logs need a file system.
    """
    if "://" in config.data_dir:
        raise ConfigError(
            "the data directory, where logs are and what workers need while they run, is a directory of this machine, "
            "not a URL: name one with --data-dir. Sinks may be in object storage"
        )
    return Path(os.path.expandvars(config.data_dir)).expanduser().absolute()
