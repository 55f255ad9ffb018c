"""The rules of the house, kept by tests."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src").rglob("*.py"))
HAND_WRITTEN = [path for path in SOURCES if not path.name.endswith(("_pb2.py", "_pb2_grpc.py"))]
DOCS = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINES_MAX = 600
STATEMENTS_MAX = 40
BANNED_FILES = {"utils.py", "common.py", "helpers.py", "misc.py", "types.py"}
BANNED_NAMES = re.compile(r"\b(seq_no|evt|mgr|ctx|lsn|watermark|destination)\b")
ALLOWED_NAMES = {"ctx": ("cli/group.py", "cli/units.py"), "lsn": ("interface", "source/postgres")}
BANNED_WORDS = re.compile(
    r"\b(told|somebody|mend(s|ed|ing)?|in vain|so many|work(s|ed)? off|goes on behind|this is none|"
    r"whatever (its|their) capitals|in whatever capitals)\b",
    re.IGNORECASE,
)
"""Words that are no technical English. Say notified, listed, known, fix, without effect, process, continues after."""

CLIENT_SHARES = {"client", "clock", "model", "retry"}
"""What `tailrace.client` may import of `tailrace`; the rest is the server."""


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", HAND_WRITTEN, ids=name)
def test_a_file_is_one_concept(path):
    text = path.read_text()
    assert path.name not in BANNED_FILES
    assert len(text.splitlines()) <= LINES_MAX, "is it still one concept?"
    tree = ast.parse(text)
    assert ast.get_docstring(tree), "a module says what it is"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            statements = sum(isinstance(child, ast.stmt) for child in ast.walk(node)) - 1
            assert statements <= STATEMENTS_MAX, f"{node.name} has {statements} statements"


@pytest.mark.parametrize(
    "path", [path for path in HAND_WRITTEN if path.name not in {"__init__.py", "__main__.py"}], ids=name
)
def test_the_public_names_of_a_module_are_declared_and_exist(path):
    tree = ast.parse(path.read_text())
    declared = next(
        (ast.literal_eval(n.value) for n in tree.body if isinstance(n, ast.Assign) and n.targets[0].id == "__all__"),
        None,
    )
    assert declared is not None, "no __all__"
    defined = set()
    for node in tree.body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                defined.add(node.name)
            case ast.Assign():
                defined |= {target.id for target in node.targets if isinstance(target, ast.Name)}
            case ast.AnnAssign() if isinstance(node.target, ast.Name):
                defined.add(node.target.id)
            case ast.ImportFrom() | ast.Import():
                defined |= {alias.asname or alias.name for alias in node.names}
    assert set(declared) <= defined


def test_no_unfinished_business():
    marks = re.compile(r"TO" + r"DO|FIX" + r"ME|XX" + r"X|NotImplemented" + r"Error")
    assert [name(path) for path in HAND_WRITTEN if marks.search(path.read_text())] == []


def test_the_words_are_those_of_the_glossary():
    found = []
    for path in HAND_WRITTEN:
        for node in ast.walk(ast.parse(path.read_text())):
            words = {"Name": "id", "arg": "arg", "FunctionDef": "name", "ClassDef": "name"}.get(type(node).__name__)
            word = words and getattr(node, words)
            allowed = any(place in str(path) for place in ALLOWED_NAMES.get(word, ()))
            if word and BANNED_NAMES.search(word) and not allowed:
                found.append(f"{name(path)}: {word}")
    assert found == []


@pytest.mark.parametrize(
    "path",
    [*HAND_WRITTEN, *DOCS],
    ids=name,
)
def test_texts_and_names_are_plain_technical_english(path):
    words = path.read_text().replace("_", " ")
    assert [match[0] for match in BANNED_WORDS.finditer(words)] == []


def test_interfaces_are_named_by_what_they_are():
    found = [name(path) for path in [*HAND_WRITTEN, *DOCS] if re.search(r"\b[Ss]eeds? [A-D]\b", path.read_text())]
    assert found == []


def test_every_server_package_is_forbidden_to_the_client():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (contract,) = [each for each in contracts if each["name"] == "the client imports no server package"]
    package = ROOT / "src" / "tailrace"
    present = {path.stem for path in package.glob("[!_]*.py")} | {
        path.parent.name for path in package.glob("*/__init__.py")
    }
    assert {name.removeprefix("tailrace.") for name in contract["forbidden_modules"]} == present - CLIENT_SHARES
