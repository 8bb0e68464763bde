"""Checks which package may import which (the table of docs/ARCHITECTURE.md) by reading the source with ``ast``.

Imports inside functions and under TYPE_CHECKING count like any other.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "barnabas"

PACKAGES = (
    "model",
    "wire",
    "core",
    "storage",
    "net",
    "runtime",
    "broker",
    "controller",
    "node",
    "client",
    "gateway",
    "spark",
    "sim",
    "app",
    "cli",
    "testing",
)


def all_but(*packages: str) -> tuple[str, ...]:
    return tuple(package for package in PACKAGES if package not in packages)


MAY_IMPORT: dict[str, tuple[str, ...]] = {
    # A package may always import itself. A dotted name allows only that part of a package.
    "model": (),
    "wire": ("model",),
    "core": ("model", "wire"),
    "storage": ("model", "wire"),
    "net": ("model", "wire"),
    "runtime": ("model", "wire", "core", "storage"),
    "broker": ("model", "wire", "core", "runtime"),
    "controller": ("model", "wire", "core", "runtime"),
    "node": ("model", "wire", "core", "storage", "runtime", "broker", "controller"),
    "client": ("model", "wire"),
    "gateway": ("model", "wire", "net", "client"),
    "spark": ("model", "wire", "client", "storage.tier"),
    "sim": all_but("sim", "net", "gateway", "spark", "client", "app", "cli", "testing"),
    "app": all_but("app", "sim", "cli", "testing"),
    "cli": all_but("cli", "sim", "testing"),
    "testing": ("model", "app"),
}

OF_THE_PACKAGE = ("client.arrow",)
"""What ``barnabas/__init__.py`` offers by name, loaded on first use."""

STANDARD_LIBRARY_ONLY = ("model",)
PURE = ("model", "wire", "core")
IMPURE_MODULES = frozenset({"asyncio", "time", "random", "os", "socket", "threading", "logging"})
ASYNCIO = ("net", "gateway", "app")
SOCKETS = ("net", "client")
"""The client is for programs that have no event loop."""

FILES_OF_CLI = ("__main__.py",)
"""``python -m barnabas`` runs the command line."""


class Import(NamedTuple):
    file: str
    line: int
    package: str
    target: str
    """The full dotted name: of a module, or of something in one."""

    def __str__(self) -> str:
        return f"{self.file}:{self.line} ({self.package}) imports {self.target}"


def package_of(relative: Path) -> str | None:
    if len(relative.parts) > 1:
        return relative.parts[0]
    if relative.name in FILES_OF_CLI:
        return "cli"
    return None


def imports(root: Path) -> Iterator[Import]:
    for file in sorted(root.rglob("*.py")):
        relative = file.relative_to(root)
        parents = ("barnabas", *relative.parent.parts)
        package = package_of(relative) or "barnabas"
        for node in ast.walk(ast.parse(file.read_text(), str(file))):
            for target in _targets(node, parents):
                yield Import(str(relative), getattr(node, "lineno", 0), package, target)


def _targets(node: ast.AST, parents: tuple[str, ...]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield alias.name
    elif isinstance(node, ast.ImportFrom):
        base = parents[: len(parents) - node.level + 1] if node.level else ()
        module = ".".join((*base, *(node.module or "").split("."))).strip(".")
        for alias in node.names:
            yield f"{module}.{alias.name}"
    elif isinstance(node, ast.Call):
        # importlib.import_module("barnabas.…") and __import__ are imports too.
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        first = node.args[0] if node.args else None
        if name in ("import_module", "__import__") and isinstance(first, ast.Constant) and isinstance(first.value, str):
            yield first.value


def is_allowed(found: Import) -> bool:
    parts = found.target.split(".")
    if parts[0] != "barnabas" or len(parts) == 1:
        return True
    target = ".".join(parts[1:])
    allowed = (found.package, *MAY_IMPORT.get(found.package, OF_THE_PACKAGE))
    return any(target == name or target.startswith(f"{name}.") for name in allowed)


def violations(root: Path) -> list[str]:
    found = list(imports(root))
    listed = [str(each) for each in found if not is_allowed(each)]
    for each in found:
        top = each.target.split(".")[0]
        if each.package in STANDARD_LIBRARY_ONLY and top != "barnabas" and top not in sys.stdlib_module_names:
            listed.append(f"{each}: only the standard library may be imported there")
        if each.package in PURE and top in IMPURE_MODULES:
            listed.append(f"{each}: the package is pure")
        if top == "asyncio" and each.package not in ASYNCIO:
            listed.append(f"{each}: asyncio is in {', '.join(ASYNCIO)} only")
        if top in ("socket", "ssl", "selectors") and each.package not in SOCKETS:
            listed.append(f"{each}: sockets are in {', '.join(SOCKETS)} only")
    return listed


def test_the_table_names_every_package_and_no_other() -> None:
    assert tuple(MAY_IMPORT) == PACKAGES
    assert {name.split(".")[0] for names in MAY_IMPORT.values() for name in names} <= set(PACKAGES)


def test_broker_and_controller_do_not_import_each_other() -> None:
    assert "controller" not in MAY_IMPORT["broker"]
    assert "broker" not in MAY_IMPORT["controller"]


def test_no_package_imports_sim_or_testing() -> None:
    for package, allowed in MAY_IMPORT.items():
        assert not {"sim", "testing"} & set(allowed), package


def test_the_table_has_no_cycles() -> None:
    below = {package: {name.split(".")[0] for name in names} for package, names in MAY_IMPORT.items()}
    placed: set[str] = set()
    while ready := [package for package in PACKAGES if package not in placed and below[package] <= placed]:
        placed.update(ready)
    assert placed == set(PACKAGES)


def test_every_file_belongs_to_a_package() -> None:
    files = (file.relative_to(SOURCE) for file in SOURCE.rglob("*.py"))
    unplaced = [str(file) for file in files if package_of(file) not in PACKAGES and str(file) != "__init__.py"]
    assert unplaced == []


def test_an_import_of_the_package_loads_nothing_else() -> None:
    script = "import sys, barnabas; print([name for name in sys.modules if name.startswith(('barnabas.', 'pyarrow'))])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_packages_import_only_what_the_table_allows() -> None:
    assert violations(SOURCE) == []


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("core/x.py", "import barnabas.storage.log"),
        ("core/x.py", "from barnabas import storage"),
        ("core/x.py", "from ..storage import log"),
        ("core/x.py", "def late():\n    from barnabas.runtime.shard import Shard"),
        (
            "wire/x.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from barnabas.core.decision import Decision",
        ),
        ("wire/x.py", "from importlib import import_module\nimport_module('barnabas.core')"),
        ("broker/handlers/x.py", "from barnabas.controller import handlers"),
        ("controller/handlers/x.py", "from barnabas.broker.context import Broker"),
        ("broker/handlers/x.py", "from barnabas.storage.errors import LogOffline"),
        ("spark/x.py", "from barnabas.storage import log"),
        ("__init__.py", "from barnabas.client.wire import Client"),
        ("app/x.py", "import barnabas.sim.disk"),
        ("app/x.py", "from barnabas.cli.output import print_table"),
        ("cli/x.py", "import barnabas.sim.disk"),
        ("cli/x.py", "import asyncio"),
        ("app/listeners.py", "import socket"),
        ("__main__.py", "import asyncio"),
        ("sim/x.py", "from barnabas.app import memory_disk"),
        ("testing/x.py", "from barnabas.broker.context import Broker"),
        ("model/x.py", "import msgspec"),
        ("core/x.py", "import time"),
        ("core/x.py", "from os import path"),
        ("wire/x.py", "import logging.handlers"),
        ("runtime/x.py", "import asyncio"),
        ("storage/x.py", "from asyncio import Future"),
    ],
)
def test_a_planted_violation_is_caught(tmp_path: Path, file: str, text: str) -> None:
    planted = tmp_path / file
    planted.parent.mkdir(parents=True, exist_ok=True)
    planted.write_text(text)
    assert len(violations(tmp_path)) == 1


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("core/x.py", "from barnabas.core.decision import Decision\nfrom ..wire import codec\nimport msgspec"),
        ("runtime/x.py", "from barnabas.storage import log"),
        ("spark/x.py", "from barnabas.storage.tier.reader import Reader\nfrom barnabas.storage import tier"),
        ("net/x.py", "import asyncio, socket"),
        ("__main__.py", "from barnabas.cli import main"),
        ("__init__.py", "from barnabas.client.arrow import table"),
    ],
)
def test_what_the_table_allows_passes(tmp_path: Path, file: str, text: str) -> None:
    planted = tmp_path / file
    planted.parent.mkdir(parents=True, exist_ok=True)
    planted.write_text(text)
    assert violations(tmp_path) == []
