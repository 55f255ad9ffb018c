"""Other versions of Spark, each in an environment of its own that `scripts/spark-venv` makes."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def spark_venv(version):
    """Return the Python that has this version of PySpark. Skips, with the reason, where there is none."""
    directory = ROOT / ".venv" / f"spark-{version}"
    python = directory / "bin" / "python"
    if not (directory / ".installed").exists():
        why = directory / ".why"
        reason = why.read_text().strip() if why.exists() else f"run scripts/spark-venv {version} {directory}"
        pytest.skip(f"PySpark {version} is not installed: {reason}")
    return python
