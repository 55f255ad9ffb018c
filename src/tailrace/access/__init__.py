"""Who calls and whether they may: credentials, keys, web tokens, limits, and the end of streams whose time is up."""
