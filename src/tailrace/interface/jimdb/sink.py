"""Sinks as JimDB's messages name them, and as URLs. Pure."""

from urllib.parse import quote

from tailrace.delivery.grpc.proto import jimdb_cdc_pb2 as proto
from tailrace.model.errors import ConfigError, InvalidRequestError
from tailrace.sink_url import SinkUrl, parse

__all__ = ["shown_sink", "url_of"]

_MYSQL = "mysql"
_REQUIRED = ("mysql_host", "mysql_user", "mysql_db")
_KNOWN = {*_REQUIRED, "mysql_password", "mysql_table"}


def url_of(sink: proto.CDCSink) -> str:
    """Return the URL of a sink: for `mysql` made of its members, otherwise the one that is its member `url`.

    Raises:
        InvalidRequestError: It names no sink. Nothing of it is shown: it may hold a password.
    """
    if not sink.type:
        raise InvalidRequestError("sink.type is required: mysql, or the scheme of a sink's URL")
    config: dict[str, str] = dict(sink.config)
    url = config.get("url")
    if sink.type == _MYSQL and url is None:
        return _mysql_url(config)
    if url is None or len(config) != 1:
        raise InvalidRequestError(f"a sink of type {sink.type[:64]!r} has one member of config: url")
    try:
        scheme = parse(url).scheme
    except ConfigError as error:
        raise InvalidRequestError(str(error)) from None
    if scheme != sink.type:
        raise InvalidRequestError(f"the url of a sink of type {sink.type[:64]!r} begins with that type")
    return url


def shown_sink(url: str) -> proto.CDCSink:
    """Return a sink without its password, and without options that may hold one."""
    parts = parse(url)
    if parts.scheme == _MYSQL:
        return proto.CDCSink(type=_MYSQL, config=_mysql_config(parts))
    return proto.CDCSink(type=parts.scheme, config={"url": str(parts)})


def _mysql_url(config: dict[str, str]) -> str:
    missing = [name for name in _REQUIRED if not config.get(name)]
    if missing:
        raise InvalidRequestError(f"a sink of type mysql needs {', '.join(missing)}")
    unknown = sorted(config.keys() - _KNOWN)
    if unknown:
        raise InvalidRequestError(f"a sink of type mysql has no member {unknown[0][:64]!r}")
    if "/" in config["mysql_db"]:
        raise InvalidRequestError("mysql_db is the name of a database, without '/'")
    names = ("mysql_user", "mysql_password", "mysql_db")
    user, password, database = (quote(config.get(name, ""), safe="") for name in names)
    secret = f":{password}" if password else ""
    table = config.get("mysql_table", "")
    option = f"?table={quote(table, safe='')}" if table else ""
    url = f"mysql://{user}{secret}@{config['mysql_host']}/{database}{option}"
    try:
        parts = parse(url)
    except ConfigError:
        raise InvalidRequestError("mysql_host is a host, or a host and a port: db.example:3306") from None
    shown = parts.host if parts.port is None else f"{parts.host}:{parts.port}"
    if shown != config["mysql_host"].lower():
        raise InvalidRequestError("mysql_host is a host, or a host and a port: db.example:3306")
    return url


def _mysql_config(parts: SinkUrl) -> dict[str, str]:
    port = "" if parts.port is None else f":{parts.port}"
    config = {
        "mysql_host": f"{parts.host}{port}",
        "mysql_user": parts.user,
        "mysql_db": parts.path.removeprefix("/"),
        "mysql_table": parts.options.get("table", ""),
    }
    return {name: value for name, value in config.items() if value}
