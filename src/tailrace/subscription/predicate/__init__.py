"""Predicates: conditions on the rows of changes, in SQL and in CEL. See docs/reference/predicates.md."""

from tailrace.subscription.predicate.cel import CelValue, compile_cel, compile_cel_value
from tailrace.subscription.predicate.compile import compile_where
from tailrace.subscription.predicate.predicate import Equality, Predicate

__all__ = ["CelValue", "Equality", "Predicate", "compile_cel", "compile_cel_value", "compile_where"]
