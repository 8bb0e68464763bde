"""Writes what the documentation says of the code from the code: ``python -m tools.docs`` (``--check`` only compares).

README.md: the tables of APIs and of defaults that differ from Kafka's. docs/SETTINGS.md: every setting.
"""

from __future__ import annotations

import sys
from pathlib import Path

from barnabas.broker.apis import SERVED
from barnabas.model.broker_settings import BrokerSettings, topic_defaults
from barnabas.model.kafka_settings import WITHOUT_EFFECT
from barnabas.model.settings import LONG_MAX, Setting, described
from barnabas.model.topic_settings import TopicSettings
from barnabas.wire.catalogue import APIS

ROOT = Path(__file__).resolve().parent.parent

COMING = {
    "the newer group protocol": (68, 69),
    "transactions": (24, 25, 26, 27, 28, 65, 66),
    "security": (17, 29, 30, 31, 36, 38, 39, 40, 41, 50, 51),
    "the cluster": (34, 43, 45, 46, 52, 53, 54, 56, 57, 58, 59, 62, 63, 64, 67, 70, 73, 80, 81, 82, 94),
    "quotas": (48, 49),
    "share groups": (76, 77, 78, 79, 83, 84, 85, 86, 87, 90, 91, 92),
    "client telemetry and streams groups": (71, 72, 88, 89, 93),
}


def api_table() -> str:
    lines = ["| API | versions |", "|---|---|"]
    for api in SERVED:
        note = f" (advertised from {api.lowest_advertised})" if api.lowest_advertised != api.min_version else ""
        versions = (
            str(api.max_version) if api.min_version == api.max_version else f"{api.min_version}–{api.max_version}"
        )
        lines.append(f"| {api.name} | {versions}{note} |")
    served = {api.key for api in SERVED}
    lines += ["", "Not handled, and not advertised:", "", "| comes with | APIs |", "|---|---|"]
    listed = set(served)
    for what, keys in COMING.items():
        names = [APIS[key] for key in keys if key in APIS and key not in served]
        listed.update(keys)
        if names:
            lines.append(f"| {what} | {', '.join(names)} |")
    unlisted = [APIS[key] for key in APIS if key not in listed]
    if unlisted:
        raise SystemExit(f"tools/docs.py does not say when these come: {unlisted}")
    return "\n".join(lines)


def differing_defaults() -> str:
    lines = ["| setting | here | Kafka |", "|---|---|---|"]
    for key, (_, entry) in described(BrokerSettings).items():
        if entry.kafka_default is not None:
            lines.append(f"| `{key}` | `{entry.render(entry.default)}` | `{entry.kafka_default}` |")
    return "\n".join(lines)


def settings_page() -> str:
    own = [entry for _, entry in described(BrokerSettings).values()]
    topics = [entry for _, entry in described(TopicSettings).values()]
    parts = [
        "# Settings",
        "",
        "Made from the code by `python -m tools.docs`. Names, types and defaults are Kafka's; what is ours begins with",
        "`barnabas.`. Sources, the later ones winning: `--config FILE` (a server.properties), the environment",
        "(`BARNABAS_LOG_RETENTION_MS` is `log.retention.ms`), `--set KEY=VALUE`.",
        "",
        "## Broker",
        "",
        *_rows(own),
        "",
        "## Topics",
        "",
        "Set when a topic is created, or altered later. The default comes from the broker setting in the last column.",
        "",
        *_rows(topics, last="broker setting"),
        "",
        "Kafka's coarser spellings work too: `log.retention.minutes`, `log.retention.hours`, `log.roll.hours`,",
        "`log.roll.jitter.hours`.",
        "",
        "## Accepted without effect",
        "",
        "Settings that Kafka knows and that mean nothing here (yet): a server.properties may hold them, and",
        "`barnabas serve` names those it finds once at the start.",
        "",
        ", ".join(f"`{key}`" for key in sorted(WITHOUT_EFFECT)),
        "",
    ]
    return "\n".join(parts)


def _rows(entries: list[Setting], last: str = "changes while running") -> list[str]:
    rows = [f"| setting | type | default | what it does | {last} |", "|---|---|---|---|---|"]
    dynamic = topic_defaults()
    for entry in entries:
        note = f"`{entry.synonym}`" if entry.synonym else ("yes" if entry.dynamic or entry.key in dynamic else "")
        default = "no limit" if entry.default == LONG_MAX else entry.render(entry.default)
        shown = f"`{default}`" if default not in (None, "") else "none"
        rows.append(f"| `{entry.key}` | {entry.type.name.lower()} | {shown} | {entry.documentation} | {note} |")
    return rows


def between_markers(text: str, name: str, content: str) -> str:
    begin, end = f"<!-- {name}: made by tools/docs.py -->", f"<!-- /{name} -->"
    head, found, rest = text.partition(begin)
    if not found or end not in rest:
        raise SystemExit(f"README.md has no markers for {name}")
    return f"{head}{begin}\n{content}\n{end}{rest.partition(end)[2]}"


def pages() -> dict[Path, str]:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    readme = between_markers(readme, "apis", api_table())
    readme = between_markers(readme, "defaults", differing_defaults())
    return {ROOT / "README.md": readme, ROOT / "docs" / "SETTINGS.md": settings_page()}


def main() -> None:
    stale = []
    for path, content in pages().items():
        if not path.exists() or path.read_text(encoding="utf-8") != content:
            stale.append(path.name)
            if "--check" not in sys.argv:
                path.write_text(content, encoding="utf-8")
    if stale and "--check" in sys.argv:
        raise SystemExit(f"not up to date: {', '.join(stale)}; run python -m tools.docs")


if __name__ == "__main__":
    main()
