"""Tests of compiler/model."""
