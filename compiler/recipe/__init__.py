"""Configuration to one checked Recipe: types, ranges and defaults are declared once, and all mistakes come in one report."""
