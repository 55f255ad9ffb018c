"""`tailrace openapi`: print the OpenAPI document of the HTTP interface."""

import click
import msgspec

from tailrace.interface.openapi.document import describe

__all__ = ["openapi"]


@click.command()
def openapi() -> None:
    """Print the OpenAPI document of the HTTP interface, for tools that read one. No server is needed."""
    click.echo(msgspec.json.format(msgspec.json.encode(describe()), indent=2))
