"""The interfaces: a package for each database whose clients are served, with its nouns, options, messages, assembly."""
