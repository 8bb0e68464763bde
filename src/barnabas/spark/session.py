"""A session that works at once: the right Java, this Python, and settings for data that comes in columns."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from barnabas.spark.interpreter import worker_python
from barnabas.spark.java import cache_folder, find_java, keep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS: Mapping[str, str] = {
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

LOCAL_SETTINGS: Mapping[str, str] = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}


CONNECT_PORT = "spark.connect.grpc.binding.port"
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
EXECUTOR_JAVA_OPTIONS = "spark.executor.extraJavaOptions"

UNSAFE_ARROW = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
"""Arrow's Java then checks neither bounds nor whether memory was freed, which is a fifth of what Spark does to turn
columns into rows. A malformed batch from a user's function may then end the Java process, or be read as other data."""

LOGGING = """rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
logger.pipelines.name = org.apache.spark.sql.pipelines
logger.pipelines.level = off
logger.connect.name = org.apache.spark.sql.connect
logger.connect.level = off
"""
"""Of Spark itself, from its first line on: a level that is set in the session comes too late for most of the noise. The
gateway is where Spark looks for the level of interactive use, for which it takes every session of Python. What
pipelines and Spark Connect log they also tell whoever asked, without the stacks of Java."""


def session(
    app_name: str = "barnabas",
    master: str | None = None,
    config: Mapping[str, object] | None = None,
    *,
    silent: bool = False,
    unsafe_arrow: bool = False,
) -> SparkSession:
    """A Spark session, made or the one there is. ``master`` is Spark's: ``local[*]`` where none is given, ``spark://…``,
    or ``sc://…`` for Spark Connect. ``config`` goes before what is set here. Spark logs errors only; ``silent`` is for
    programs that tell of them in their own words. ``unsafe_arrow`` turns the checks of Arrow's Java off: faster, for
    sessions whose every Arrow batch comes from code that you trust.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415 -- Java must be found before, and workers do not need it

    master = master or os.environ.get("MASTER") or "local[*]"
    settings = settings_for(master, config or {}, unsafe_arrow=unsafe_arrow)
    if master.startswith("sc://"):
        builder = SparkSession.builder.remote(master)
    else:
        prepare_environment(master, settings)
        if "spark.log.level" not in settings:
            settings[JAVA_OPTIONS] = f"{settings.get(JAVA_OPTIONS, '')} {quiet_logging(silent)}".strip()
        if settings.get("spark.api.mode") == "connect" and CONNECT_PORT not in settings:
            return _with_own_server(app_name, master, settings)
        builder = SparkSession.builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.appName(app_name).getOrCreate()


def _with_own_server(app_name: str, master: str, settings: dict[str, str]) -> SparkSession:
    """A session of Spark Connect whose server is started here, on a free port.

    Spark by itself would have every such server listen on port 15002 of all addresses, and so a second one fail.
    """
    from pyspark.sql.connect.session import SparkSession as ConnectSession  # noqa: PLC0415 -- as above
    from pyspark.sql.session import SparkSession as ClassicSession  # noqa: PLC0415

    os.environ["SPARK_LOCAL_REMOTE"] = "1"  # so that stopping the session stops the server
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
    options = {CONNECT_PORT: "0", "spark.connect.grpc.binding.address": "127.0.0.1", **settings}
    ConnectSession._start_connect_server(master, {**options, "spark.app.name": app_name})
    server = ClassicSession._instantiatedSession
    if server is None:
        raise RuntimeError("Spark has started no server of Spark Connect")
    service = getattr(server._jvm, "org.apache.spark.sql.connect.service.SparkConnectService$")
    port = getattr(service, "MODULE$").localPort()
    # Only to a server named localhost does Spark's client send its token without TLS.
    connected = ConnectSession.builder.remote(f"sc://localhost:{port}").getOrCreate()
    return cast("SparkSession", connected)


def settings_for(master: str, config: Mapping[str, object], *, unsafe_arrow: bool = False) -> dict[str, str]:
    """What a session is built with. A server of Spark Connect has settings of its own: only the user's are added."""
    given = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in config.items()}
    if master.startswith("sc://"):
        return given
    cores = local_cores(master)
    local = {**LOCAL_SETTINGS, "spark.sql.shuffle.partitions": str(max(2, cores))} if cores else {}
    if unsafe_arrow:
        # The user's come last: of two options of Java that contradict each other the second counts.
        for name in (JAVA_OPTIONS, EXECUTOR_JAVA_OPTIONS):
            given[name] = f"{UNSAFE_ARROW} {given.get(name, '')}".strip()
    return {**SETTINGS, **local, **given}


def local_cores(master: str) -> int:
    """How many cores a local master uses; 0 where it is not local."""
    found = re.fullmatch(r"local(?:\[(\*|\d+)(?:,\s*\d+)?\])?", master)
    if found is None:
        return 0
    if found[1] == "*":
        return os.cpu_count() or 1
    return int(found[1] or 1)


def prepare_environment(master: str, settings: Mapping[str, str]) -> None:
    """For the Java process that is about to be started, and for its Python workers."""
    os.environ["JAVA_HOME"] = find_java().home
    is_local = local_cores(master) > 0
    python = worker_python(os.environ) if is_local else sys.executable
    if "spark.pyspark.python" not in settings:
        os.environ.setdefault("PYSPARK_PYTHON", python)
    # Sources that Spark finds by itself run on this one, on executors too.
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", python)
    if is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def quiet_logging(silent: bool = False) -> str:
    """The option of Java that makes Spark log errors only, or nothing."""
    file = cache_folder(os.environ) / ("log4j2-silent.properties" if silent else "log4j2.properties")
    keep(file, LOGGING.replace("= error", "= off") if silent else LOGGING)
    return f"-Dlog4j2.configurationFile={file.as_uri()}"
