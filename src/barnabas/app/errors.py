"""Why a node cannot start, in one sentence that a person can act upon."""

from __future__ import annotations


class StartError(Exception):
    """Ends ``barnabas serve`` with exit code 2 and this sentence."""
