"""The commit conversation with scripted effects and replies."""
