"""The files of a pipeline, read into a graph of Spark's, and where each of its parts stands in them."""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Container
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.errors import PySparkException
from pyspark.pipelines.cli import (
    PIPELINE_SPEC_FILE_NAMES,
    PipelineSpec,
    find_pipeline_spec,
    load_pipeline_spec,
    register_definitions,
)
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
            self._found[_last_part(found[1])] = Place(str(file), text.count("\n", 0, found.start()) + 1)

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

    def register_sql(self, sql_text: str, file_path: Path) -> None:
        self._places.note_sql(file_path, sql_text)
        try:
            super().register_sql(sql_text, file_path)
        except PySparkException as error:
            line = _LINE_IN_SQL.search(str(error))
            raise PipelineError(f"{file_path}{f':{line[1]}' if line else ''}: {plain(error)}") from error


def register(project: Project, spark: SparkSession, graph_id: str) -> Places:
    """Hands every definition of the project to Spark, as ``spark-pipelines`` does. Raises PipelineError."""
    places = Places(project.folder)
    patterns = [library.include for library in project.spec.libraries]
    files = {str(file) for pattern in patterns for file in project.folder.glob(pattern)}
    if not files:
        named = ", ".join(patterns) or "none"
        raise PipelineError(f"{project.spec_file} names no file of definitions (libraries: {named})")
    registry = _Registry(spark, graph_id, places)
    try:
        with redirect_stdout(sys.stderr):  # where Spark logs what it loads: our results are on standard output
            register_definitions(project.spec_file, registry, project.spec, spark, graph_id)
    except PipelineError:
        raise
    except Exception as error:
        place = _place_of(error, files, places)
        reason = error.msg if isinstance(error, SyntaxError) else plain(error)
        raise PipelineError(f"{place}: {reason}" if place else reason) from error
    return places


def _place_of(error: Exception, files: Container[str], places: Places) -> Place | None:
    """The last line of a definition that was being run."""
    if isinstance(error, SyntaxError) and error.filename:
        return Place(places.short(Path(error.filename)), error.lineno or 1)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in files]
    return Place(places.short(Path(frames[-1].filename)), frames[-1].lineno or 1) if frames else None


def plain(error: BaseException) -> str:
    """What Spark says, without its stack of Java: the first lines up to the plan or the trace."""
    text = error.getMessage() if isinstance(error, PySparkException) and error.getMessage() else str(error)
    kept: list[str] = []
    for line in (text or type(error).__name__).splitlines():
        if line.startswith(("JVM stacktrace", "\tat ", "== SQL")) or line.lstrip().startswith(("'", "+- ")):
            break
        kept.append(line.rstrip())
    return " ".join(part for part in kept if part) or type(error).__name__


def _last_part(name: str) -> str:
    return name.replace("`", "").rpartition(".")[2].lower()
