"""Tests of runtime/data/text."""
