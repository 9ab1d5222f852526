"""What a machine is and how fast it trains, written down as a device profile."""
