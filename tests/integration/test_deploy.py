"""The files in deploy/: checked by the tools that read them, against each other, and by running what can run here."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from barnabas.app import settings_loader
from tests.unit.cli.command_line import run

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
SYSTEMD = DEPLOY / "systemd"
NEWER_THAN_SYSTEMD_253 = ("RestartSteps", "RestartMaxDelaySec")


# systemd


def verify(unit: Path) -> list[str]:
    """What systemd complains of, without keys that an older one does not know."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    lines = (done.stdout + done.stderr).splitlines()
    return [line for line in lines if unit.stem in line and not any(key in line for key in NEWER_THAN_SYSTEMD_253)]


def installed_unit(folder: Path) -> Path:
    """The unit with a command that exists on this machine."""
    text = (SYSTEMD / "barnabas.service").read_text(encoding="utf-8")
    unit = folder / "barnabas-check.service"
    unit.write_text(text.replace("/opt/barnabas/venv/bin/barnabas", sys.executable), encoding="utf-8")
    return unit


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    assert verify(installed_unit(tmp_path)) == []


def test_systemd_accepts_the_unit_with_workers(tmp_path: Path) -> None:
    unit = installed_unit(tmp_path)
    folder = tmp_path / f"{unit.name}.d"
    folder.mkdir()
    text = (SYSTEMD / "workers.conf").read_text(encoding="utf-8")
    (folder / "workers.conf").write_text(
        text.replace("/opt/barnabas/venv/bin/barnabas", sys.executable), encoding="utf-8"
    )
    assert verify(unit) == []


def test_a_mistake_in_the_unit_would_be_seen(tmp_path: Path) -> None:
    unit = installed_unit(tmp_path)
    unit.write_text(unit.read_text(encoding="utf-8").replace("TimeoutStopSec=180", "TimeoutStopSec=often"), "utf-8")
    assert verify(unit) != []


def test_the_unit_serves_the_example_settings(tmp_path: Path) -> None:
    settings = settings_loader.load(file=str(SYSTEMD / "node.properties")).settings
    assert settings.process_roles == ("broker", "controller")
    unit = (SYSTEMD / "barnabas.service").read_text(encoding="utf-8")
    writable = re.findall(r"^ReadWritePaths=(.*)$", unit, re.MULTILINE)
    assert all(any(path.startswith(root) for root in writable) for path in settings.data_directories)
    command = re.findall(r"^ExecStart=\S+ (.+)$", unit, re.MULTILINE)
    assert command == ["serve --config /etc/barnabas/node.properties"]


# Kubernetes


def documents() -> list[dict[str, Any]]:
    files = sorted(KUBERNETES.glob("*.yaml"))
    return [found for file in files for found in yaml.safe_load_all(file.read_text(encoding="utf-8"))]


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [found for found in documents() if found["kind"] == kind]


@pytest.fixture
def stateful_set() -> dict[str, Any]:
    (found,) = of_kind("StatefulSet")
    spec: dict[str, Any] = found["spec"]
    return spec


@pytest.fixture
def config_map() -> dict[str, str]:
    (found,) = of_kind("ConfigMap")
    data: dict[str, str] = found["data"]
    return data


def containers(stateful_set: dict[str, Any]) -> list[dict[str, Any]]:
    pod = stateful_set["template"]["spec"]
    return [*pod["initContainers"], *pod["containers"]]


@pytest.mark.parametrize("document", documents(), ids=lambda found: f"{found['kind']}/{found['metadata']['name']}")
def test_manifests_follow_the_schema(document: dict[str, Any]) -> None:
    validator = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate (108 MB) is not installed")
    validator.validate(document, validator.latest_version(), strict=True)


def test_selectors_match_the_pods(stateful_set: dict[str, Any]) -> None:
    labels = stateful_set["template"]["metadata"]["labels"].items()
    pod = stateful_set["template"]["spec"]
    selectors = [stateful_set["selector"]["matchLabels"]]
    selectors += [service["spec"]["selector"] for service in of_kind("Service")]
    selectors += [budget["spec"]["selector"]["matchLabels"] for budget in of_kind("PodDisruptionBudget")]
    selectors += [policy["spec"]["podSelector"]["matchLabels"] for policy in of_kind("NetworkPolicy")]
    spread = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    selectors += [each["labelSelector"]["matchLabels"] for each in [*spread, *pod["topologySpreadConstraints"]]]
    assert len(selectors) == 7
    assert all(selector and selector.items() <= labels for selector in selectors)


def test_ports_are_those_of_the_listeners(stateful_set: dict[str, Any], config_map: dict[str, str]) -> None:
    (main,) = stateful_set["template"]["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in main["ports"]}
    listeners = settings_loader.parse_properties(config_map["common.properties"])["listeners"]
    assert sorted(ports.values()) == sorted(int(each.rpartition(":")[2]) for each in listeners.split(","))
    for service in of_kind("Service"):
        assert all(ports[port["targetPort"]] == port["port"] for port in service["spec"]["ports"])
    for probe in ("startupProbe", "livenessProbe"):
        assert main[probe]["tcpSocket"]["port"] in ports
    for policy in of_kind("NetworkPolicy"):
        assert all(port["port"] in ports for rule in policy["spec"]["ingress"] for port in rule["ports"])


def test_the_headless_service_names_the_pods(stateful_set: dict[str, Any]) -> None:
    (headless,) = [each for each in of_kind("Service") if each["spec"].get("clusterIP") == "None"]
    assert stateful_set["serviceName"] == headless["metadata"]["name"]
    assert headless["spec"]["publishNotReadyAddresses"] is True
    (prepare,) = stateful_set["template"]["spec"]["initContainers"]
    given = {each["name"]: each.get("value") for each in prepare["env"]}
    assert given["SERVICE_NAME"] == headless["metadata"]["name"]


def has_key(variable: dict[str, Any]) -> bool:
    return "configMapKeyRef" in variable.get("valueFrom", {})


def test_what_is_mounted_and_read_exists(stateful_set: dict[str, Any], config_map: dict[str, str]) -> None:
    pod = stateful_set["template"]["spec"]
    volumes = {each["name"] for each in pod["volumes"]}
    volumes |= {claim["metadata"]["name"] for claim in stateful_set["volumeClaimTemplates"]}
    for container in containers(stateful_set):
        assert {mount["name"] for mount in container["volumeMounts"]} == volumes
    (prepare,) = pod["initContainers"]
    keys = {each["valueFrom"]["configMapKeyRef"]["key"] for each in prepare["env"] if has_key(each)}
    assert keys == {"cluster-id", "directory-ids", "first-start"}
    assert keys <= config_map.keys()
    given = {each["name"] for each in prepare["env"]}
    script = re.sub(r"(?m)^\s*#.*$", "", config_map["prepare.sh"])
    assert set(re.findall(r"\$\{?([A-Z_]+)", script)) <= given


def test_a_service_called_barnabas_does_not_become_settings(stateful_set: dict[str, Any]) -> None:
    """Kubernetes sets BARNABAS_SERVICE_HOST and others in pods, and BARNABAS_… are our settings."""
    assert stateful_set["template"]["spec"]["enableServiceLinks"] is False
    names = [each["name"] for container in containers(stateful_set) for each in container.get("env", [])]
    assert not [name for name in names if name.startswith(settings_loader.ENVIRONMENT_PREFIX)]


def test_one_image_without_a_registry(stateful_set: dict[str, Any]) -> None:
    (image,) = {container["image"] for container in containers(stateful_set)}
    assert "/" not in image
    assert f"-t {image} " in (DEPLOY / "docker" / "Dockerfile").read_text(encoding="utf-8")


# What the pods run


def prepare(folder: Path, config_map: dict[str, str], node: int, **changes: str) -> subprocess.CompletedProcess[str]:
    """The init step of one pod, in a folder of its own."""
    config, settings, data = (folder / name for name in ("config", f"settings-{node}", f"data-{node}"))
    for each in (config, settings):
        each.mkdir(exist_ok=True)
    for name, text in config_map.items():
        (config / name).write_text(text.replace("/data/barnabas", str(data)), encoding="utf-8")
    environment = {
        "PATH": f"{command_folder(folder)}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "POD_NAME": f"barnabas-{node}",
        "POD_NAMESPACE": "streams",
        "NODE_NAME": f"machine-{node}",
        "ZONE": "",
        "SERVICE_NAME": "barnabas-nodes",
        "CLUSTER_DOMAIN": "cluster.local",
        "CONFIG": str(config),
        "SETTINGS": str(settings),
        "CLUSTER_ID": config_map["cluster-id"],
        "DIRECTORY_IDS": config_map["directory-ids"],
        "FIRST_START": config_map["first-start"],
        **changes,
    }
    command = ["sh", str(config / "prepare.sh")]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def command_folder(folder: Path) -> Path:
    """A folder with the command ``barnabas`` of these sources."""
    place = folder / "bin"
    place.mkdir(exist_ok=True)
    script = place / "barnabas"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m barnabas "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    return place


def uuid() -> str:
    return run("storage", "random-uuid").stdout.strip()


@pytest.fixture
def filled(config_map: dict[str, str]) -> dict[str, str]:
    """The ConfigMap with ids, as the user makes it."""
    return {**config_map, "cluster-id": uuid(), "directory-ids": " ".join(uuid() for _ in range(3))}


def info(folder: Path, node: int) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(
        run("storage", "info", "-c", str(folder / f"settings-{node}" / "node.properties"), "--json").stdout
    )
    return found


def test_the_init_step_refuses_placeholders(tmp_path: Path, config_map: dict[str, str]) -> None:
    done = prepare(tmp_path, config_map, 0)
    assert done.returncode == 1
    assert "storage random-uuid" in done.stderr


def test_the_init_step_formats_each_voter_once(tmp_path: Path, filled: dict[str, str]) -> None:
    voters = set()
    for node, directory in enumerate(filled["directory-ids"].split()):
        assert "Formatting metadata directory" in prepare(tmp_path, filled, node).stdout
        assert "is formatted already" in prepare(tmp_path, filled, node).stdout
        found = info(tmp_path, node)
        (properties,) = [each["properties"] for each in found["directories"]]
        assert (properties["cluster.id"], properties["node.id"]) == (filled["cluster-id"], str(node))
        assert properties["directory.id"] == directory
        voters.add(tuple(found["voters"]))
    ((first, *others),) = voters
    assert len(others) == 2
    assert first.startswith("0@barnabas-0.barnabas-nodes.streams.svc.cluster.local:9093:")


def test_an_empty_volume_after_the_first_start_is_not_a_voter(tmp_path: Path, filled: dict[str, str]) -> None:
    assert prepare(tmp_path, filled, 1, FIRST_START="false").returncode == 0
    assert prepare(tmp_path, filled, 3).returncode == 0  # a fourth node, after scaling
    for node in (1, 3):
        found = info(tmp_path, node)
        assert found["voters"] == []
        assert found["directories"][0]["properties"]["directory.id"] not in filled["directory-ids"]


def test_the_settings_of_a_pod(tmp_path: Path, filled: dict[str, str]) -> None:
    prepare(tmp_path, filled, 2)
    file = tmp_path / "settings-2" / "node.properties"
    settings = settings_loader.load(file=str(file)).settings
    host = "barnabas-2.barnabas-nodes.streams.svc.cluster.local"
    assert settings.advertised_listeners == (f"PLAINTEXT://{host}:9092", f"CONTROLLER://{host}:9093")
    assert settings.broker_rack == "machine-2"
    prepare(tmp_path, filled, 2, ZONE="zone-b")
    assert settings_loader.load(file=str(file)).settings.broker_rack == "zone-b"


def test_the_readiness_probe_is_a_command_that_exists(stateful_set: dict[str, Any]) -> None:
    (main,) = stateful_set["template"]["spec"]["containers"]
    shell, flag, line = main["readinessProbe"]["exec"]["command"]
    assert (shell, flag) == ("sh", "-c")
    words = line.replace("exec barnabas", "").replace('"${HOSTNAME##*-}"', "0").split()
    words[words.index("--bootstrap-server") + 1] = "127.0.0.1:1"  # nothing listens there
    assert "connection refused" in run(*words, code=1).stdout
    assert float(words[words.index("--timeout") + 1]) < main["readinessProbe"]["timeoutSeconds"]
