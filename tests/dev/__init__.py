"""What ./dev runs besides the package itself."""
