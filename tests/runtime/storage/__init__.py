"""Tests of runtime/storage."""
