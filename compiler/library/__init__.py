"""Kernels compiled and linked into one library that loads on any Linux or Android."""
