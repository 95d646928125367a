"""The style guide as assertions."""
