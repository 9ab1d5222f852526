"""Tests of runtime/engine."""
