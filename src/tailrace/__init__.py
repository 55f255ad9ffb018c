"""Tailrace: every committed row change of a database, in a durable log, delivered live and in bulk."""

__all__ = ["__version__"]

__version__ = "0.1.0"
