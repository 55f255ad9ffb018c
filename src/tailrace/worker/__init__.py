"""Workers: processes beside the main one that deliver streams. See docs/decisions/workers.md."""
