"""The docs are complete: every setting, command, call, error and metric has its place."""

import ast
import inspect
import re
from pathlib import Path

import pytest

from tailrace.cli.group import tailrace
from tailrace.config import SETTINGS
from tailrace.model import errors

SECRETS = {"auth.tokens", "auth.key_pepper", "auth.jwt_secret"}
"""Settings without a flag: command lines can be read by others."""

DOCS = Path(__file__).parent.parent / "docs"


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.path)
def test_each_setting_is_documented(setting):
    rows = (DOCS / "reference" / "settings.md").read_text().splitlines()
    (row,) = [row for row in rows if row.startswith(f"| `{setting.path}` |")]
    assert f"`{setting.variable}`" in row
    assert f"`{setting.flag}`" in row or setting.path in SECRETS


@pytest.mark.parametrize("command", tailrace.list_commands(None))
def test_each_command_is_documented(command):
    assert f"## {command}\n" in (DOCS / "reference" / "cli.md").read_text()


@pytest.mark.parametrize("name", errors.__all__)
def test_each_error_is_documented_and_drawn_in_the_tree(name):
    assert name in (DOCS / "reference" / "errors.md").read_text()
    assert name in inspect.getdoc(errors)


def test_each_message_of_level_info_is_documented():
    page = (DOCS / "reference" / "logging.md").read_text()
    unsaid = []
    server = [path for path in (DOCS.parent / "src" / "tailrace").rglob("*.py") if "client" not in path.parts]
    for path in server:
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "logger.info":
                texts = [node.value for node in ast.walk(call.args[0]) if isinstance(node, ast.Constant)]
                unsaid += [text for text in texts if isinstance(text, str) and f"`{text}`" not in page]
    assert unsaid == [], "list it in docs/reference/logging.md"


def test_files_that_the_architecture_names_are_there():
    root = DOCS.parent
    named = set(re.findall(r"`((?:[\w-]+/)+[\w-]+\.py)`", (root / "ARCHITECTURE.md").read_text()))
    assert [name for name in named if not any((base / name).exists() for base in (root, root / "src/tailrace"))] == []


def test_lines_of_text_fit_a_diff():
    pages = [*DOCS.rglob("*.md"), *(DOCS.parent / name for name in ("README.md", "ARCHITECTURE.md", "CHANGELOG.md"))]
    long = []
    for page in pages:
        code = False
        for number, line in enumerate(page.read_text().splitlines(), 1):
            code ^= line.lstrip().startswith("```")
            if len(line) > 120 and not code and not line.startswith("|") and "`" not in line:
                long.append(f"{page.name}:{number}")
    assert long == []


@pytest.mark.parametrize("path", sorted([*DOCS.rglob("*.md"), *DOCS.parent.glob("*.md")]), ids=lambda path: path.name)
def test_links_between_pages_lead_somewhere(path):
    for target in re.findall(r"\]\((?!http)([^)#]+)", path.read_text()):
        assert (path.parent / target).exists(), target
