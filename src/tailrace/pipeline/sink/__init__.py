"""Sinks: where a pipeline puts changes."""
