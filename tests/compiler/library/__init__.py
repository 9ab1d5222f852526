"""Tests of compiler/library."""
