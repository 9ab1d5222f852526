"""Files before anyone knows what they hold: which are read, in which encoding, and JSON without loading all of it."""
