"""HTTP: routes, authentication, settings, metrics."""
