"""Which URL is which target: the only place that knows the targets by name. Each is imported when it is wanted."""

import importlib

from tailrace.extra import how_to_install
from tailrace.message.base import Target
from tailrace.model.errors import ConfigError
from tailrace.sink_url import SinkUrl, a_sink

__all__ = ["TARGETS", "target_of"]

TARGETS: dict[str, str] = {
    "kafka": "kafka",
    "redis": "redis",
    "rediss": "redis",
    "nats": "nats",
    "nats+tls": "nats",
    "amqp": "rabbitmq",
    "amqps": "rabbitmq",
    "opensearch+https": "opensearch",
    "opensearch+http": "opensearch",
    "typesense+https": "typesense",
    "typesense+http": "typesense",
    "webhook+https": "webhook",
    "webhook+http": "webhook",
}
"""The module of `tailrace.message.target` for each scheme. It has `build(url, name)`, which returns the target."""

_EXTRAS: dict[str, str] = {
    "kafka": "kafka",
    "nats": "nats",
    "rabbitmq": "rabbitmq",
    "redis": "redis",
}
"""What has to be installed besides for the target in a module; the others come with a plain installation."""


def target_of(url: SinkUrl, name: str) -> Target:
    """Return the target at a URL for the sink of that name, not opened yet.

    Raises:
        ConfigError: There is none, an option is wrong, or a package is missing. No password is shown.
    """
    if url.scheme not in TARGETS:
        raise ConfigError(f"messages cannot go to {url.scheme} URLs; they can go to {', '.join(TARGETS)}")
    module = TARGETS[url.scheme]
    try:
        target: Target = importlib.import_module(f"tailrace.message.target.{module}").build(url, name)
    except ModuleNotFoundError as error:
        if module not in _EXTRAS or (error.name or "").startswith("tailrace"):
            raise
        raise ConfigError(f"{a_sink(url.scheme)} needs {error.name}: {how_to_install(_EXTRAS[module])}") from None
    return target
