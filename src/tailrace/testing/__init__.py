"""Public fakes at the seams. Each passes the same contract tests as the real thing; nothing shipped imports them."""
