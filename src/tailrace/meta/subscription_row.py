"""Subscriptions as rows of the metadata database. Pure."""

import sys
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from tailrace.model.errors import MetadataError
from tailrace.model.number import Offset
from tailrace.model.op import Op
from tailrace.model.subscription import (
    FilterOptions,
    Format,
    Include,
    Subscription,
    SubscriptionDraft,
    SubscriptionId,
    Target,
)

__all__ = ["subscription_of", "values_of"]

_SHARED_CHARACTERS_MAX = 512
"""Longest target whose decoded form is kept for others."""


def values_of(draft: SubscriptionDraft) -> dict[str, Any]:
    """Return the cells of a subscription that has no number yet."""
    return {
        "source": draft.source,
        "target": msgspec.json.encode(draft.target).decode(),
        "filter": msgspec.json.encode(draft.filter).decode(),
        "include_before": draft.include.before,
        "include_after": draft.include.after,
        "format": str(draft.format),
        "cursor": draft.cursor,
        "paused": draft.paused,
        "auto_ack": draft.auto_ack,
        "snapshot": draft.snapshot,
        "snapshot_offset": None,
        "transient": draft.transient,
        "owner": draft.owner,
    }


def subscription_of(row: Mapping[Any, Any]) -> Subscription:
    """Return the subscription of a row.

    Raises:
        MetadataError: It is none.
    """
    try:
        return Subscription(
            id=SubscriptionId(row["id"]),
            source=row["source"],
            target=_target(row["target"]),
            filter=_filter(row["filter"]),
            include=_include(before=row["include_before"], after=row["include_after"]),
            format=Format(row["format"]),
            cursor=Offset(row["cursor"]),
            created_time_us=row["created_time_us"],
            paused=row["paused"],
            auto_ack=row["auto_ack"],
            snapshot=row["snapshot"],
            snapshot_offset=row["snapshot_offset"],
            transient=row["transient"],
            owner=row["owner"],
        )
    except (msgspec.DecodeError, ValueError, TypeError) as error:
        raise MetadataError(f"subscription {row['id']} in the metadata database is not readable") from error


# A hundred thousand subscriptions have few different targets, ops and types of keys: they share them.


def _target(text: str) -> Target:
    return _short_target(text) if len(text) <= _SHARED_CHARACTERS_MAX else _any_target(text)


def _filter(text: str) -> FilterOptions:
    options = msgspec.json.decode(text, type=FilterOptions)
    for literal in options.key:
        if isinstance(literal, dict) and isinstance(kind := literal.get("t"), str):
            literal["t"] = sys.intern(kind)
    return msgspec.structs.replace(options, ops=_ops(options.ops))


def _any_target(text: str) -> Target:
    target: Target = msgspec.json.decode(text, type=Target)
    return target


_short_target = lru_cache(1024)(_any_target)


@lru_cache(64)
def _ops(ops: tuple[Op, ...]) -> tuple[Op, ...]:
    return ops


@lru_cache(4)
def _include(*, before: bool, after: bool) -> Include:
    return Include(before=before, after=after)
