"""Tests of the commit library."""
