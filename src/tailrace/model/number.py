"""The two number lines of a shard, and the source's own place mark."""

from typing import NewType

__all__ = ["Index", "Offset", "Position", "SchemaId"]

Offset = NewType("Offset", int)
"""Number of a change in its shard: from 1, dense, never reused. 0 means "before the first"."""

Index = NewType("Index", int)
"""Number of a commit in its shard: from 1, dense, never reused. 0 means "before the first"."""

SchemaId = NewType("SchemaId", int)
"""Number of a table schema version in its shard's log: from 1, in order of arrival."""

Position = NewType("Position", str)
"""A place in the source's own log; opaque outside that source and ordered only within it."""
