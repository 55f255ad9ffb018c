"""What diagnostics say of a server that starts: versions, and the settings that are not the defaults. No secrets."""

import platform
from functools import reduce
from typing import Any

import apsw
import pyarrow as pa

from tailrace import __version__
from tailrace.config import SETTINGS, Config
from tailrace.sources import without_password

__all__ = ["shown_settings", "versions"]


def versions() -> dict[str, str]:
    """Return the versions that a report of a problem should have."""
    return {
        "version": __version__,
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
        "arrow": str(pa.__version__),
        "system": platform.platform(),
    }


def shown_settings(config: Config) -> dict[str, Any]:
    """Return the settings that differ from the defaults, by path; of secrets only that they are set."""
    default = Config()
    shown = {
        setting.path: "(set)" if setting.secret else _value(config, setting.path)
        for setting in SETTINGS
        if _value(config, setting.path) != _value(default, setting.path)
    }
    if "sources" in shown:
        shown["sources"] = {name: without_password(source.url) for name, source in config.sources.items()}
    if "metadata_url" in shown:
        shown["metadata_url"] = without_password(config.metadata_url)
    if config.auth.principals:
        shown["auth.principals"] = sorted(config.auth.principals)
    if config.sinks:
        shown["sinks"] = sorted(config.sinks)
    return shown


def _value(config: Config, path: str) -> Any:
    return reduce(getattr, path.split("."), config)
