"""The errors that a user can cause; each message is one line with the cause and the mend."""

from __future__ import annotations


class StitchtuneError(Exception):
    """Base of every error with a message meant for the user; the command line prints it and exits."""


class GraphError(StitchtuneError):
    """The exported graph cannot be used: unreadable, invalid or inconsistent. Exit code 2."""


class InputError(StitchtuneError):
    """Feeds, options or files given by the user do not fit. Exit code 2."""


class VerifyError(AssertionError):
    """One of our own stages produced an inconsistent value: a bug of ours, never the user's."""
