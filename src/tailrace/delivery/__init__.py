"""The interfaces that serve feeds: decode, call the subscription service, present."""
