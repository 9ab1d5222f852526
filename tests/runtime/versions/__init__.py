"""Tests of runtime/versions."""
