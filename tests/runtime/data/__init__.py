"""Tests of runtime/data."""
