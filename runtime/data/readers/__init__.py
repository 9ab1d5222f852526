"""One module per kind of file; each turns a source's text into conversations, chat-log lines or quarantined rows.

In:  Source (a name and how to open it) and ReadOptions.
Out: an iterator of Found | Quarantined | ChatLine in the file's order.
The table of readers is in registry.py, so that nothing is registered by importing.
"""
