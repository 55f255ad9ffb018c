"""Where in object storage a sink is, and how it is reached: what its URL and the environment say of it. Pure.

`s3://BUCKET/PATH`, `gs://BUCKET/PATH` and `az://CONTAINER/PATH`. Three libraries read and write there: obstore (plain
objects), delta-rs and pyiceberg. All are given the same settings, so that none finds other credentials than the rest.
"""

import configparser
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from msgspec import Struct

from tailrace.model.errors import ConfigError

__all__ = ["OPTIONS", "SECRET_OPTIONS", "ObjectPlace", "is_object_path", "object_place"]

OPTIONS: dict[str, dict[str, str]] = {
    "s3": {
        "access_key_id": "aws_access_key_id",
        "secret_access_key": "aws_secret_access_key",
        "session_token": "aws_session_token",
        "region": "aws_region",
        "endpoint": "aws_endpoint_url",
    },
    "gs": {"service_account": "google_service_account"},
    "az": {
        "account": "azure_storage_account_name",
        "account_key": "azure_storage_account_key",
        "sas_token": "azure_storage_sas_token",
    },
}
"""Options of a sink's URL by the scheme of its place, each with the name that obstore and delta-rs have for it."""

SECRET_OPTIONS = ("access_key_id", "secret_access_key", "session_token", "service_account", "account_key", "sas_token")
"""Options that say who we are, not where the objects are."""

_ENVIRONMENT = {
    "aws_access_key_id": ("AWS_ACCESS_KEY_ID",),
    "aws_secret_access_key": ("AWS_SECRET_ACCESS_KEY",),
    "aws_session_token": ("AWS_SESSION_TOKEN",),
    "aws_region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
    "aws_endpoint_url": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
}
"""Variables that are read here; those of `gs` and `az` are read by the libraries, as all other ways to credentials."""

_ICEBERG = {
    "aws_access_key_id": "s3.access-key-id",
    "aws_secret_access_key": "s3.secret-access-key",
    "aws_session_token": "s3.session-token",
    "aws_region": "s3.region",
    "aws_endpoint_url": "s3.endpoint",
}

_KEY = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
_REGION = "us-east-1"
"""Where a bucket is if nothing says so, as other tools have it."""

_RETRIES_MAX = 4
_RETRY_S_MAX = 20
_TIMEOUT_S = 60
_CONNECT_TIMEOUT_S = 5
"""A request is tried so often, for so long, before the batch fails, which the pipeline tries again with pauses."""

_NOT_IN_PATHS = "%\\*[]?#\n\r\t"
"""Characters that one of the libraries takes for something else than a part of a name."""


class ObjectPlace(Struct, frozen=True):
    """A prefix of a bucket, and the settings to reach it. Picklable; shown without the settings."""

    scheme: str
    bucket: str
    prefix: str
    """Begins and ends without a slash."""

    settings: dict[str, str] = {}

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}" + (f"/{self.prefix}" if self.prefix else "")

    def __repr__(self) -> str:
        return str(self)

    def below(self, path: str) -> "ObjectPlace":
        """Return the place of what is below this one."""
        prefix = "/".join(part for part in (self.prefix, path.strip("/")) if part)
        return ObjectPlace(self.scheme, self.bucket, prefix, self.settings)

    @property
    def for_delta(self) -> dict[str, str]:
        """Return the settings as delta-rs takes them. A commit is a put that fails where the object is there."""
        given = {name.upper(): value for name, value in self.settings.items()}
        conditional = {"AWS_CONDITIONAL_PUT": "etag"} if self.scheme == "s3" else {}
        return {
            **given,
            **conditional,
            "allow_http": str(self.is_plain_http).lower(),
            "max_retries": str(_RETRIES_MAX),
            "retry_timeout": f"{_RETRY_S_MAX}s",
            "timeout": f"{_TIMEOUT_S}s",
            "connect_timeout": f"{_CONNECT_TIMEOUT_S}s",
        }

    @property
    def for_obstore(self) -> dict[str, Any]:
        """Return the settings as obstore takes them."""
        return {
            "config": self.settings,
            "client_options": {
                "allow_http": self.is_plain_http,
                "timeout": f"{_TIMEOUT_S}s",
                "connect_timeout": f"{_CONNECT_TIMEOUT_S}s",
            },
            "retry_config": {"max_retries": _RETRIES_MAX, "retry_timeout": timedelta(seconds=_RETRY_S_MAX)},
        }

    @property
    def for_iceberg(self) -> dict[str, str]:
        """Return the settings as pyiceberg takes them."""
        named = {_ICEBERG[name]: value for name, value in self.settings.items() if name in _ICEBERG}
        limits = {"s3.connect-timeout": str(_CONNECT_TIMEOUT_S), "s3.request-timeout": str(_TIMEOUT_S)}
        return {**named, **limits} if self.scheme == "s3" else {}

    @property
    def is_plain_http(self) -> bool:
        """Tell whether the endpoint is one without TLS: it was named as such."""
        return self.settings.get("aws_endpoint_url", "").startswith("http://")


def is_object_path(path: str) -> bool:
    """Tell whether the path of a sink's URL is a place in object storage."""
    return path.partition("://")[0] in OPTIONS and "://" in path


def object_place(path: str, options: Mapping[str, str], environment: Mapping[str, str]) -> ObjectPlace:
    """Return the place that a sink's URL names; `options` are those of `OPTIONS` that it has.

    Raises:
        ConfigError: It has no bucket, or characters that cannot be in it, or half a key.
    """
    scheme, _, rest = path.partition("://")
    bucket, _, prefix = rest.partition("/")
    if not bucket or any(letter in bucket for letter in "@:{}"):
        raise ConfigError(
            f"write a place in object storage as {scheme}://BUCKET/PATH, with its endpoint and credentials as options"
        )
    if odd := sorted({letter for letter in rest if letter in _NOT_IN_PATHS}):
        raise ConfigError(f"a sink in object storage cannot have {' '.join(odd)!r} in its path")
    known = OPTIONS[scheme]
    settings = {known[name]: value for name, value in options.items()}
    if scheme == "s3":
        settings = _with_environment(settings, environment)
        endpoint = settings.get("aws_endpoint_url", "https://")
        if not endpoint.startswith(("http://", "https://")):
            raise ConfigError("the option endpoint of a sink is a URL: begin it with https:// or http://")
    return ObjectPlace(scheme, bucket, "/".join(part for part in prefix.split("/") if part), settings)


def _with_environment(settings: dict[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of S3 with what the environment and the user's profile add: a key comes from one place."""
    found = {
        name: next((environment[variable] for variable in variables if environment.get(variable)), "")
        for name, variables in _ENVIRONMENT.items()
    }
    given = {name for name in _KEY if name in settings}
    profile = _profile(environment)
    key = settings if given else found if found["aws_access_key_id"] else profile
    if bool(key.get("aws_access_key_id")) != bool(key.get("aws_secret_access_key")):
        raise ConfigError("a key of object storage has two parts: name access_key_id and secret_access_key")
    merged = {
        "aws_region": found["aws_region"] or profile.get("aws_region", "") or _REGION,
        "aws_endpoint_url": found["aws_endpoint_url"],
        **{name: value for name, value in settings.items() if name not in _KEY},
        **{name: key.get(name, "") for name in _KEY},
    }
    return {name: value for name, value in merged.items() if value}


def _profile(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the key and region of the profile that AWS_PROFILE names, else of the usual one; empty without any."""
    home = Path(environment.get("HOME", "/nonexistent")) / ".aws"
    name = environment.get("AWS_PROFILE", "default")
    section = name if name == "default" else f"profile {name}"
    keys = _section(Path(environment.get("AWS_SHARED_CREDENTIALS_FILE") or home / "credentials"), name)
    config = _section(Path(environment.get("AWS_CONFIG_FILE") or home / "config"), section)
    values = {**config, **keys}
    if "AWS_PROFILE" in environment and "aws_access_key_id" not in values:
        raise ConfigError(
            f"AWS_PROFILE names {name!r}, which has no access key in the files of credentials: profiles that ask "
            "a service for keys are not read here. Export its keys as AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and "
            "AWS_SESSION_TOKEN"
        )
    named = {one: values[one] for one in _KEY if one in values}
    return named | ({"aws_region": values["region"]} if "region" in values else {})


def _section(path: Path, name: str) -> dict[str, str]:
    """Return a section of a file of credentials; empty where it, or the file, is not there."""
    parser = configparser.RawConfigParser()
    try:
        parser.read(path, encoding="utf-8")
    except (configparser.Error, OSError, UnicodeDecodeError):
        raise ConfigError(f"{path} is no file of AWS profiles: fix it, or set AWS_ACCESS_KEY_ID") from None
    return dict(parser[name]) if parser.has_section(name) else {}
