"""CoordiNode's interface: commits of a shard as events with storage keys and values."""
