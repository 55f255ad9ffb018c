"""Sources: one package per database. `base` is the seam; only `tailrace.app` knows the packages behind it."""
