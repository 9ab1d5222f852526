"""What a new version's answers are judged by: pure functions from texts and numbers to numbers, without a model and without files.

In:  answers, references, questions and scores.
Out: how near (chrf, tokens), how true (entities), how it sounds (tone), what went wrong (degeneration, leakage), and whether it is chance (paired).
"""
