"""Tests of runtime/probe."""
