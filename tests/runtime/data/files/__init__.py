"""Tests of runtime/data/files."""
