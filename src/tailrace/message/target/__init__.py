"""Where messages go: one module for each kind of target. `tailrace.message.targets` knows them by name."""
