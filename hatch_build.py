"""Compiles the helpers where a compiler is. Without one, or when anything fails, Tailrace is pure Python."""

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
SOURCES = (
    Path("src/tailrace/log/_payload.c"),
    Path("src/tailrace/log/_pick.c"),
    Path("src/tailrace/delivery/_join.c"),
    Path("src/tailrace/pipeline/_images.c"),
    Path("src/tailrace/source/postgres/_rows.c"),
)
BUILT_SUFFIX = ".abi3.so"
COMPILE_SECONDS_MAX = 120


class CompiledHelper(BuildHookInterface):  # type: ignore[misc]
    """Puts the helpers into a wheel, or beside their sources for an editable installation."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and say so in the tag of the wheel: any Python from 3.11 on, this kind of machine."""
        if self.target_name != "wheel" or os.environ.get(PURE_VARIABLE):
            return
        if version != "editable":
            self._directory = tempfile.TemporaryDirectory()  # until the wheel is made
        for name in SOURCES:
            source = Path(self.root) / name
            beside = source.with_suffix(BUILT_SUFFIX)
            built = beside if version == "editable" else Path(self._directory.name) / beside.name
            if compile_helper(source, built) and version != "editable":
                platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
                build_data["pure_python"] = False
                build_data["tag"] = f"cp311-abi3-{platform}"
                build_data["force_include"][str(built)] = str(beside.relative_to(Path(self.root) / "src"))


def compile_helper(source: Path, built: Path) -> bool:
    """Compile the helper and return whether that worked. A file that is there is replaced at once, or stays."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    made = built.with_name(f"{built.name}.{os.getpid()}.tmp")
    flags = ["-O2", "-shared", "-fPIC", f"-I{sysconfig.get_path('include')}", str(source), "-o", str(made)]
    try:
        subprocess.run([*compiler, *flags], check=True, capture_output=True, timeout=COMPILE_SECONDS_MAX)  # noqa: S603
        made.replace(built)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"tailrace: pure Python is installed, {source.name} was not compiled: {error}", file=sys.stderr)
        made.unlink(missing_ok=True)
        return False
    return True
