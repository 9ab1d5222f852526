"""Versions of the model: the adapter merged into weights of its own or mounted, stored, and one of them current."""
