"""Envelopes: forms in which a change is sent to others: ours, and those that other systems have made common. Pure."""
