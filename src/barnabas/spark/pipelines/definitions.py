"""The files of a pipeline, read into a graph of Spark's, and where each of its parts stands in them."""

from __future__ import annotations

import importlib.util
import os
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.errors import PySparkException
from pyspark.pipelines.add_pipeline_analysis_context import add_pipeline_analysis_context
from pyspark.pipelines.block_session_mutations import block_session_mutations
from pyspark.pipelines.cli import (
    PIPELINE_SPEC_FILE_NAMES,
    PipelineSpec,
    find_pipeline_spec,
    load_pipeline_spec,
)
from pyspark.pipelines.graph_element_registry import graph_element_registration_context
from pyspark.pipelines.spark_connect_graph_element_registry import SparkConnectGraphElementRegistry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DEFINITION = re.compile(
    r"\bCREATE\s+(?:OR\s+REFRESH\s+)?(?:(?:TEMPORARY|STREAMING|MATERIALIZED)\s+)*(?:TABLE|VIEW|FLOW)\s+"
    r"(?:IF\s+NOT\s+EXISTS\s+)?([\w.`]+)",
    re.IGNORECASE,
)
_LINE_IN_SQL = re.compile(r"\(line (\d+), pos(?:ition)? \d+\)")


class Place(NamedTuple):
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class PipelineError(Exception):
    """What is wrong with a pipeline, in words that name the file and the line where there is one."""


class Project(NamedTuple):
    spec_file: Path
    spec: PipelineSpec

    @property
    def folder(self) -> Path:
        return self.spec_file.parent.resolve()

    def files(self) -> list[Path]:
        """The files of definitions, each once, in a stable order."""
        found: dict[Path, None] = {}
        for library in self.spec.libraries:
            for file in sorted(self.folder.glob(library.include)):
                if file.is_file() and "__pycache__" not in file.parts:
                    found[file] = None
        return list(found)


def open_project(given: Path | None) -> Project:
    """The pipeline of a spec file, of a folder, or of the folder we are in or one above it. Raises PipelineError."""
    try:
        spec_file = _spec_file(given or Path.cwd())
    except PySparkException as error:
        names = " or ".join(PIPELINE_SPEC_FILE_NAMES)
        raise PipelineError(f"there is no {names} in {given or Path.cwd()} or above it") from error
    try:
        return Project(spec_file, load_pipeline_spec(spec_file))
    except PySparkException as error:
        raise PipelineError(f"{spec_file}: {plain(error)}") from error
    except Exception as error:  # yaml's own, and whatever a file that is no mapping makes of the reading
        raise PipelineError(f"{spec_file} cannot be read: {error}") from error


def _spec_file(given: Path) -> Path:
    if given.is_file():
        return given
    if not given.exists():
        raise PipelineError(f"{given} does not exist")
    return find_pipeline_spec(given.resolve())


class Places:
    """Where in the project's files the flows and tables are defined."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._found: dict[str, Place] = {}

    def note(self, name: str | None, location: Any) -> None:
        file, line = getattr(location, "filename", None), getattr(location, "line_number", None)
        if name and file:
            self._found[_last_part(name)] = Place(self.short(Path(file)), int(line or 1))

    def note_sql(self, file: Path, text: str) -> None:
        for found in _DEFINITION.finditer(text):
            self._found[_last_part(found[1])] = Place(self.short(file), text.count("\n", 0, found.start()) + 1)

    def of(self, name: str) -> Place | None:
        return self._found.get(_last_part(name))

    def named_in(self, message: str) -> Place | None:
        """The place of the first part of the graph that a message of Spark's names."""
        for name in re.findall(r"[`'\"]?((?:\w+[`'\"]?\.[`'\"]?)*\w+)[`'\"]?", message):
            if place := self.of(name):
                return place
        return None

    def short(self, file: Path) -> str:
        resolved = file.resolve()
        return str(resolved.relative_to(self._folder)) if resolved.is_relative_to(self._folder) else str(file)


class _Registry(SparkConnectGraphElementRegistry):
    def __init__(self, spark: SparkSession, graph_id: str, places: Places) -> None:
        super().__init__(spark, graph_id)
        self._places = places

    def register_output(self, output: Any) -> None:
        self._places.note(output.name, output.source_code_location)
        super().register_output(output)

    def register_flow(self, flow: Any) -> None:
        self._places.note(flow.name, flow.source_code_location)
        super().register_flow(flow)


def register(project: Project, spark: SparkSession, graph_id: str) -> Places:
    """Hands every definition of the project to Spark. Raises PipelineError."""
    places = Places(project.folder)
    files = project.files()
    if not files:
        patterns = ", ".join(library.include for library in project.spec.libraries) or "none"
        raise PipelineError(f"{project.spec_file} names no file of definitions (libraries: {patterns})")
    registry = _Registry(spark, graph_id, places)
    with _inside(project.folder), graph_element_registration_context(registry):
        for file in files:
            _register_file(file, registry, places, spark, graph_id)
    return places


def _register_file(file: Path, registry: _Registry, places: Places, spark: SparkSession, graph_id: str) -> None:
    name = places.short(file)
    try:
        if file.suffix == ".py":
            _run_python(file, spark, graph_id)
        elif file.suffix == ".sql":
            text = file.read_text(encoding="utf-8")
            places.note_sql(file, text)
            registry.register_sql(text, Path(name))
        else:
            raise PipelineError(f"{name}: definitions are .py or .sql files")
    except PipelineError:
        raise
    except SyntaxError as error:
        raise PipelineError(f"{name}:{error.lineno}: {error.msg}") from error
    except Exception as error:
        raise PipelineError(f"{_place_in(file, name, error)}: {plain(error)}") from error


def _run_python(file: Path, spark: SparkSession, graph_id: str) -> None:
    module_spec = importlib.util.spec_from_file_location(file.stem, str(file))
    if module_spec is None or module_spec.loader is None:
        raise PipelineError(f"{file} cannot be imported")
    module = importlib.util.module_from_spec(module_spec)
    module.__dict__["spark"] = spark
    with add_pipeline_analysis_context(spark=spark, dataflow_graph_id=graph_id, flow_name=None):  # noqa: SIM117
        with block_session_mutations():
            module_spec.loader.exec_module(module)


def _place_in(file: Path, name: str, error: Exception) -> str:
    """Of SQL, the line that Spark's message names; of Python, the last line of the file that was being run."""
    if file.suffix == ".sql":
        found = _LINE_IN_SQL.search(str(error))
        return f"{name}:{found[1]}" if found else name
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    return f"{name}:{lines[-1]}" if lines else name


def plain(error: BaseException) -> str:
    """What Spark says, without its stack of Java: the first lines up to the plan or the trace."""
    text = error.getMessage() if isinstance(error, PySparkException) and error.getMessage() else str(error)
    kept: list[str] = []
    for line in (text or type(error).__name__).splitlines():
        if line.startswith(("JVM stacktrace", "\tat ", "== SQL")) or line.lstrip().startswith(("'", "+- ")):
            break
        kept.append(line.rstrip())
    return " ".join(part for part in kept if part) or type(error).__name__


@contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _last_part(name: str) -> str:
    return name.replace("`", "").rpartition(".")[2].lower()
