"""The commands and links of the pages for operators exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from barnabas.cli import main

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = [
    DOCS / "CLUSTER.md",
    DOCS / "RELIABILITY.md",
    DOCS / "TRANSACTIONS.md",
    *sorted((DOCS / "runbooks").glob("*.md")),
]
NAMES = {page: page.relative_to(DOCS).as_posix() for page in PAGES}


def commands(text: str) -> list[str]:
    """In blocks and between backticks, with continued lines joined; without comments and outputs."""
    joined = text.replace("\\\n", " ")
    lines = re.findall(r"^\s*(?:\$ |until |sudo -u barnabas )?(barnabas .*)$", joined, re.MULTILINE)
    return [re.split(r"\s#|;|\||>", line)[0] for line in [*lines, *re.findall(r"`(barnabas [^`]+)`", joined)]]


def problem(line: str) -> str | None:
    """What is wrong with a command line; None where its commands and options exist."""
    words = shlex.split(line.replace("…", ""))[1:]
    context, found = click.Context(main), main
    while isinstance(found, click.Group) and words:
        following = found.get_command(context, words[0].rstrip(","))
        if following is None:
            return f"{found.name} has no command {words[0]}"
        found, words = following, words[1:]
    known = {option for parameter in found.params for option in (*parameter.opts, *parameter.secondary_opts)}
    unknown = [word for word in words if word.startswith("-") and word.split("=")[0] not in {*known, "--help", "-"}]
    return f"{found.name} has no option {unknown[0]}" if unknown else None


@pytest.mark.parametrize("page", PAGES, ids=NAMES.get)
def test_commands_exist(page: Path) -> None:
    lines = [line for line in commands(page.read_text(encoding="utf-8")) if not line.startswith("barnabas: ")]
    assert {line: wrong for line in lines if (wrong := problem(line))} == {}


def test_a_command_that_does_not_exist_would_be_seen() -> None:
    assert problem("barnabas broker reddy 1") == "broker has no command reddy"
    assert problem("barnabas broker ready 1 --soon") == "ready has no option --soon"
    assert len(commands((DOCS / "CLUSTER.md").read_text(encoding="utf-8"))) > 30


@pytest.mark.parametrize("page", [*PAGES, DOCS.parent / "README.md"], ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            path, _, anchor = target.partition("#")
            file = (page.parent / path) if path else page
            assert file.exists(), target
            assert not anchor or anchor in anchors(file), target


def anchors(file: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}
