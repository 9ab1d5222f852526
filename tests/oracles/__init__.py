"""What other programs compute on the same inputs, and the scripts that write it into tests/cases."""
