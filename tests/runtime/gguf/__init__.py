"""Tests of runtime/gguf."""
