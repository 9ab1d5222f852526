"""Which conversations are kept: the scenario's rules, computed for a few thousand conversations at once."""
