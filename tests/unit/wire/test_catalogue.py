"""Lookup of message classes, what it imports, and their schemas."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import barnabas.wire
from barnabas.wire import catalogue
from barnabas.wire.header import request_header_version, response_header_version
from barnabas.wire.schema import Struct, fields_of, parse_versions, versions_of

WIRE = Path(barnabas.wire.__path__[0])
IMPURE = {"asyncio", "time", "random", "os", "socket", "threading", "logging"}


def test_every_api_has_a_request_and_a_response() -> None:
    for api_key, name in catalogue.APIS.items():
        request, response = catalogue.api_classes(api_key)
        assert (request.__name__, response.__name__) == (name + "Request", name + "Response")
        assert request.api_key == response.api_key == api_key
        assert request.versions == response.versions
        assert request.served_by
        for version in versions_of(request).all():
            assert request_header_version(request, version) in (1, 2)
            assert response_header_version(response, version) in (0, 1)


def test_own_apis_are_found_and_not_listed_among_kafkas() -> None:
    for api_key, name in catalogue.OWN_APIS.items():
        request, response = catalogue.api_classes(api_key)
        assert (request.__name__, response.__name__) == (name + "Request", name + "Response")
        assert (request.api_key, request.versions) == (api_key, response.versions)
        assert catalogue.message_class(request.__name__) is request
        assert not {request.__name__, response.__name__} & set(catalogue.names())
        assert catalogue.api_name(api_key) == name
    assert not catalogue.OWN_APIS.keys() & catalogue.APIS.keys()


def test_unknown_names_and_keys() -> None:
    with pytest.raises(KeyError):
        catalogue.api_classes(9999)
    with pytest.raises(KeyError):
        catalogue.api_name(9999)
    with pytest.raises(KeyError):
        catalogue.message_class("Nothing")


def test_tags_stand_in_flexible_versions_only() -> None:
    for name in catalogue.names():
        cls = catalogue.message_class(name)
        for field in every_field(cls):
            if field.tag is not None:
                flexible = parse_versions(cls.flexible)
                assert max(field.versions.first, versions_of(cls).first) >= flexible.first, (name, field.name)


def every_field(cls: type[Struct]) -> list[barnabas.wire.schema.Field]:
    found = list(fields_of(cls))
    for field in fields_of(cls):
        if field.struct is not None:
            found += every_field(field.struct)
    return found


def test_arrays_are_not_shared_between_messages() -> None:
    request, _ = catalogue.api_classes(1)
    first, second = request(), request()
    first.topics.append(1)  # type: ignore[attr-defined]
    assert second.topics == []  # type: ignore[attr-defined]


def test_one_api_does_not_load_the_others() -> None:
    program = "import sys, barnabas.wire.codec, barnabas.wire.header, barnabas.wire.api.fetch; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()
    assert [name for name in loaded if name.startswith("barnabas.wire.api.")] == ["barnabas.wire.api.fetch"]
    assert not [name for name in loaded if name.startswith("barnabas.wire.stored")]


def test_the_room_is_pure() -> None:
    for path in sorted(WIRE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            assert not {name.partition(".")[0] for name in names} & IMPURE, path
