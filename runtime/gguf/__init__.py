"""The GGUF file format: reading, writing, its types, and its quantized blocks."""
