"""The central differential test: random graphs under random legal plans against the reference."""
