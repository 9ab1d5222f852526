"""The part of MobileFineTuner that runs on the phone: stdlib, numpy and tokenizers only.

In:  a compiled bundle and the owner's data.
Out: a workspace with cleaned data, checkpoints, versioned weight files and an audit log.
"""

__version__ = "0.1.0"
