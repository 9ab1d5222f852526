"""The operators that a model is written in: one record each, listed in table.py."""
