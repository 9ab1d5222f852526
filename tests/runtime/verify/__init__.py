"""Tests of runtime/verify."""
