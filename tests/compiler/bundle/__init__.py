"""Tests of compiler/bundle."""
