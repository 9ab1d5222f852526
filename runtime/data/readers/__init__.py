"""One module per kind of file; each turns a source's text into conversations, chat-log lines or quarantined rows.

In:  Source (a name and how to open it) and ReadOptions.
Out: an iterator of Conversation | Quarantined | ChatLine in the file's order.
Which reader takes which source is decided in data/reading.py; importing one registers nothing.
"""
