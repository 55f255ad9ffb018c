"""Who calls and whether they may: credentials, keys, web tokens, limits, and the end of streams whose time is up.

And what they may reach besides changes, each with the rights that it takes: keys and values, and SQL statements.
"""
