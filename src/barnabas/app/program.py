"""How to call ``barnabas`` from the current shell, for hints that can be pasted."""

from __future__ import annotations

import os
import shlex
import sys

NAME = "barnabas"


def program() -> str:
    """``barnabas`` where that is the command that runs, or else the path to it, e.g. ``.venv/bin/barnabas``."""
    path = os.path.abspath(sys.argv[0])
    if os.path.basename(path) != NAME or not os.path.exists(path) or _is_on_path(path):
        return NAME
    relative = os.path.relpath(path)
    return shlex.quote(path if relative.startswith(os.pardir) else relative)


def activation() -> str | None:
    """The script that puts the command on the PATH, where it is not and there is one."""
    if program() == NAME:
        return None
    script = os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "activate")
    if not os.path.exists(script):
        return None
    relative = os.path.relpath(script)
    return shlex.quote(script if relative.startswith(os.pardir) else relative)


def _is_on_path(path: str) -> bool:
    from shutil import which  # noqa: PLC0415 -- brings three compressions along

    found = which(NAME)
    return found is not None and os.path.samefile(found, path)
