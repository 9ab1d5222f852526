"""Tests that push to, run on and pull from a phone, real or played by this machine."""
