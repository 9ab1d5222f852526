"""What texts are made of, for measuring: words, numbers, entities' parts, one form for many spellings, the language."""
