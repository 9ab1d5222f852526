"""The base model as the compiler sees it: where it comes from, its sizes, weights, tokenizer and chat template."""
