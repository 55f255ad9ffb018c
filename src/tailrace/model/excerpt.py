"""The part of a text around a place, for people. Pure."""

__all__ = ["excerpt"]

_SIDE = 60
"""How many characters an excerpt shows on either side of its place."""


def excerpt(text: str, place: int) -> str:
    """Return the part of the line around a place, and a mark under it."""
    begin = max(text.rfind("\n", 0, place) + 1, place - _SIDE)
    end = text.find("\n", place)
    end = min(len(text) if end < 0 else end, place + _SIDE)
    return f"  {text[begin:end]}\n  {' ' * (place - begin)}^"
