"""Tests of runtime/data/rules."""
