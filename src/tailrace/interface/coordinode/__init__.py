"""The interface of CoordiNode: commits of a shard as events with storage keys and values."""
