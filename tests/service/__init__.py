"""Tests of headgate.service."""
