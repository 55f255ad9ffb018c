"""An archive of the classes that Spark loads, with which its Java starts in less than half of the processor time.

Java calls it class data sharing: classes lie in a file as they are in memory, and are neither parsed nor verified.
An archive belongs to one Java and one set of jars; Java looks at both itself and does without an archive that does not
fit. It is made on request (`tailrace pipeline prepare`): that takes a minute, and 170 MB.
"""

import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from tailrace.pipeline.errors import PipelineError
from tailrace.pipeline.spark import Java, archive_path, open_session

__all__ = ["make_archive"]

_DUMP_S_MAX = 600.0
_END_S_MAX = 60.0
_LOOK_S = 0.1


def make_archive(java: Java) -> Path:
    """Make the archive for a Java and the installed PySpark, in place of one that is there; return where it is.

    Raises:
        ConfigError: There is no PySpark.
        PipelineError: Spark cannot be started, or Java cannot make it.
    """
    path = archive_path(java)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="tailrace-classes-") as directory:
        listed, made = Path(directory) / "classes", path.with_name(f"{path.name}.{os.getpid()}")
        classpath = _list_classes(java, listed, Path(directory))
        command = [str(java.home / "bin" / "java"), "-Xshare:dump", "-Xlog:disable", "-Xlog:all=error:stderr"]
        command += [f"-XX:SharedClassListFile={listed}", f"-XX:SharedArchiveFile={made}", "-cp", classpath]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=_DUMP_S_MAX)  # noqa: S603 - our Java
            made.replace(path)
        except (OSError, subprocess.SubprocessError) as error:
            raise PipelineError(f"{java} cannot make an archive of classes: {type(error).__name__}") from error
        finally:
            made.unlink(missing_ok=True)
    return path


def _list_classes(java: Java, listed: Path, directory: Path) -> str:
    """Run what a pipeline runs in a Spark that writes down which classes it loads; return its class path."""
    from pyspark import SparkContext

    confs = {
        "spark.log.level": "ERROR",
        "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -XX:DumpLoadedClassList={listed}",
    }
    session = open_session(java, confs=confs)
    gateway: Any = SparkContext._gateway  # noqa: SLF001 - Java has to end before its list is whole
    try:
        classpath = str(session.sparkContext._jvm.java.lang.System.getProperty("java.class.path"))  # noqa: SLF001
        _use(session, directory)
    finally:
        session.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(_END_S_MAX)
        SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001 - the next session starts another one
    return classpath


def _use(session: Any, directory: Path) -> None:
    """Follow a stream until its first batch is done, which is brought here as Arrow, as in a pipeline."""
    stream = session.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    writing = stream.writeStream.foreachBatch(lambda frame, _: frame.toArrow())
    query = writing.option("checkpointLocation", str(directory / "checkpoint")).start()
    end_s = time.monotonic() + _END_S_MAX
    while query.lastProgress is None and query.isActive and time.monotonic() < end_s:
        query.awaitTermination(_LOOK_S)
    query.stop()
