"""What `./dev` runs besides the package itself: never imported by it."""
