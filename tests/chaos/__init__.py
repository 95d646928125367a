"""Killed processes, lost answers and unknown outcomes: what was acknowledged is there, once and whole."""
