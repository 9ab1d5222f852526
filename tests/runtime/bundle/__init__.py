"""Tests of runtime/bundle."""
