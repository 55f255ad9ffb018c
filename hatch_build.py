"""Compiles the helper of the log where a compiler is. Without one, or when anything fails, Tailrace is pure Python."""

import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

__all__ = ["CompiledHelper", "compile_helper"]

PURE_VARIABLE = "TAILRACE_PURE"
SOURCE = Path("src/tailrace/log/_payload.c")
BUILT = "_payload.abi3.so"
COMPILE_SECONDS_MAX = 120


class CompiledHelper(BuildHookInterface):  # type: ignore[misc]
    """Puts the helper into a wheel, or beside its source for an editable installation."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and say so in the tag of the wheel: any Python from 3.11 on, this kind of machine."""
        if self.target_name != "wheel" or os.environ.get(PURE_VARIABLE):
            return
        source = Path(self.root) / SOURCE
        if version == "editable":
            compile_helper(source, source.with_name(BUILT))
            return
        self._directory = tempfile.TemporaryDirectory()  # until the wheel is made
        built = Path(self._directory.name) / BUILT
        if compile_helper(source, built):
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["pure_python"] = False
            build_data["tag"] = f"cp311-abi3-{platform}"
            build_data["force_include"][str(built)] = f"tailrace/log/{BUILT}"


def compile_helper(source: Path, built: Path) -> bool:
    """Compile the helper and return whether that worked. A file that is there is replaced at once, or stays."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    made = built.with_name(f"{built.name}.{os.getpid()}.tmp")
    flags = ["-O2", "-shared", "-fPIC", f"-I{sysconfig.get_path('include')}", str(source), "-o", str(made)]
    try:
        subprocess.run([*compiler, *flags], check=True, capture_output=True, timeout=COMPILE_SECONDS_MAX)  # noqa: S603
        made.replace(built)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"tailrace: pure Python is installed, the helper was not compiled: {error}", file=sys.stderr)
        made.unlink(missing_ok=True)
        return False
    return True
