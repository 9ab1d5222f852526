"""The phone's commands, one module each: SUMMARY, configure(parser) and run(session, options) -> exit code."""

NAMES = ("ingest", "tune", "verify", "chat", "versions", "rollback", "export", "import", "status", "audit", "probe")
"""in the order of --help"""
