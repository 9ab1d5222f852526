"""Tests of compiler/recipe."""
