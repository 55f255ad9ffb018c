"""How an extra of the package is installed: it is on no package index, so its source directory is named. Pure."""

__all__ = ["how_to_install"]


def how_to_install(extras: str) -> str:
    """Return the command that installs extras, e.g. `spark` or `spark,mysql`, for the message of an error."""
    return f"pip install '.[{extras}]' in the source directory of Tailrace"
