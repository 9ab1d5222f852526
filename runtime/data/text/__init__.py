"""Facts about text that need no other part: scripts, sentence ends, words, personal numbers."""
