"""Spark against the gate, and the Spark session of the tests."""
