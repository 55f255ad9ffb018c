"""Predicates and values in CEL, which is the same for every database. See docs/reference/predicates.md."""

from tailrace.subscription.cel.compile import CelValue, compile_cel, compile_cel_value
from tailrace.subscription.cel.library import load_library

__all__ = ["CelValue", "compile_cel", "compile_cel_value", "load_library"]
