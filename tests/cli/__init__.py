"""Tests of headgate.cli."""
