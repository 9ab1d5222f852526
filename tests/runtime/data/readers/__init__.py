"""Tests of runtime/data/readers."""
