"""Headgate: the gate that every commit to a lakehouse table passes through."""

__version__ = "0.1.0"
