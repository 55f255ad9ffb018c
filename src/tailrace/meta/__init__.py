"""The metadata database: state that must survive, through SQLAlchemy Core."""

from tailrace.meta.store import MetaStore

__all__ = ["MetaStore"]
