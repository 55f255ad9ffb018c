"""Change streams: commits of a shard in order, for readers that come with a token or are registered as consumers."""
