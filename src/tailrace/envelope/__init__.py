"""Forms in which a change is told to others: ours, and those that other systems have made common. Pure."""
