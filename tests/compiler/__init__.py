"""Tests of compiler."""
