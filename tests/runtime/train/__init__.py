"""Tests of runtime/train."""
