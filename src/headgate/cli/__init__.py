"""The `headgate` command: a thin face over the public API."""
