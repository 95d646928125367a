"""Tests of headgate.format."""
