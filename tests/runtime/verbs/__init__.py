"""Tests of runtime/verbs."""
