"""Which name is which envelope: the only place that knows them by name."""

from tailrace.envelope.base import Envelope
from tailrace.envelope.cloud_event import BinaryCloudEvent, StructuredCloudEvent
from tailrace.envelope.debezium import DebeziumEnvelope
from tailrace.envelope.maxwell import MaxwellEnvelope
from tailrace.envelope.own import OwnEnvelope
from tailrace.envelope.row import RowEnvelope
from tailrace.model.errors import ConfigError

__all__ = ["ENVELOPES", "OWN", "WHOLE", "envelope_of"]

OWN = "tailrace"
"""Name of our own envelope, which is in force where none is named."""

ENVELOPES: dict[str, Envelope] = {
    OWN: OwnEnvelope(),
    "debezium": DebeziumEnvelope(with_schema=False),
    "debezium-schema": DebeziumEnvelope(with_schema=True),
    "cloudevents": StructuredCloudEvent(),
    "cloudevents-binary": BinaryCloudEvent(),
    "maxwell": MaxwellEnvelope(),
    "row": RowEnvelope(),
}


WHOLE = tuple(name for name in ENVELOPES if name not in {"cloudevents-binary", "row"})
"""Envelopes whose value says everything: nothing is beside it in headers, and a deleted row is sent, too."""


def envelope_of(name: str) -> Envelope:
    """Return the envelope of that name.

    Raises:
        ConfigError: There is none.
    """
    if name not in ENVELOPES:
        raise ConfigError(f"there is no envelope {name[:64]!r}; there are {', '.join(ENVELOPES)}")
    return ENVELOPES[name]
