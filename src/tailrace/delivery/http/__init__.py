"""The HTTP interface of SkeinDB: RPC, server-sent events, health and metrics."""

from tailrace.delivery.http.app import create_app
from tailrace.delivery.http.options import HttpOptions
from tailrace.delivery.http.server import Address, serve

__all__ = ["Address", "HttpOptions", "create_app", "serve"]
