"""The metadata database: state that must survive, through SQLAlchemy Core."""

from tailrace.meta.store import MetaStore, SubscriptionDraft

__all__ = ["MetaStore", "SubscriptionDraft"]
