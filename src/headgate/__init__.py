"""Headgate: the gate that every commit to a lakehouse table passes through."""

from headgate.library.open import open

__all__ = ["open"]
__version__ = "0.1.0"
