"""A compiled bundle as the phone reads it: the checked folder, the plan, the tokenizer, the chat format."""
