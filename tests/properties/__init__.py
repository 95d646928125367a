"""Properties of the core over rows: what is committed concurrently equals a serial execution."""
