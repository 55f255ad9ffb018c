"""HTTP: the server, who calls, health, and what streams share. What is served is in `tailrace.interface`."""

from tailrace.delivery.http.options import HttpOptions
from tailrace.delivery.http.server import Address, serve

__all__ = ["Address", "HttpOptions", "serve"]
