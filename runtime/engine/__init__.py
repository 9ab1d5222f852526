"""The compiled model at work: the kernel library, the memory of each phase, forward passes and decoding."""
