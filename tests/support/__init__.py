"""What tests of several folders share: small models, bundles, trials of kernels and of the engine."""
