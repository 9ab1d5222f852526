"""Tests against other tools' own code: llama.cpp, transformers, PEFT."""
