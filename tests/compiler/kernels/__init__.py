"""Tests of compiler/kernels."""
