"""Other engines against a real service process."""
