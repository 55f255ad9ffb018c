"""Facts about `tailrace token`."""

import json
import sqlite3

import pytest
from click.testing import CliRunner

from tailrace.access.key import key_hash, looks_like_key
from tailrace.cli.token import token


@pytest.fixture
def run(tmp_path, monkeypatch):
    for name in ("TAILRACE_AUTH_KEY_PEPPER", "TAILRACE_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)

    def call(*arguments, code=0, **environment):
        done = CliRunner().invoke(token, [*arguments, "--data-dir", str(tmp_path)], env=environment)
        assert done.exit_code == code, (done.output, done.exception)
        return done

    return call


def made(run, *arguments, **environment):
    return json.loads(run("create", *arguments, "--json", **environment).stdout)


def test_a_key_is_shown_once_and_kept_as_a_hash(run, tmp_path):
    shown = run("create", "bob").stdout.strip()
    assert looks_like_key(shown)
    assert shown not in run("ls", "--json").stdout
    with sqlite3.connect(tmp_path / "metadata.db") as database:
        (stored,) = database.execute("SELECT hash FROM tailrace_api_key").fetchone()
    database.close()
    assert stored == key_hash(shown, "")
    for file in tmp_path.iterdir():
        assert shown.encode() not in file.read_bytes()


def test_the_pepper_of_the_server_is_that_of_its_keys(run, tmp_path):
    shown = made(run, "bob", TAILRACE_AUTH_KEY_PEPPER="pepper")["token"]
    database = sqlite3.connect(tmp_path / "metadata.db")
    assert database.execute("SELECT hash FROM tailrace_api_key").fetchone() == (key_hash(shown, "pepper"),)
    database.close()


def test_what_a_key_grants_is_what_was_said(run):
    options = ["--role", "viewer", "--capability", "write", "--tenant", "acme", "--namespace", "shop"]
    options += ["--table", "shop.orders", "--rows", "shop.orders= customer_id = 7 ", "--expires", "30d"]
    entry = made(run, "bob", *options)
    assert entry["grants"] == {
        "tenant": "acme",
        "role": "viewer",
        "capabilities": ["write"],
        "namespaces": ["shop"],
        "tables": ["shop.orders"],
        "rows": {"shop.orders": "customer_id = 7"},
    }
    assert (entry["id"], entry["name"]) == ("key-1", "bob")
    assert entry["expires"] > entry["created"]
    assert made(run, "eve")["expires"] is None


def test_an_expiry_may_be_a_date(run):
    assert made(run, "bob", "--expires", "2100-01-31")["expires"] == "2100-01-31T00:00:00Z"
    assert made(run, "bob", "--expires", "2100-01-31T10:00:00+02:00")["expires"] == "2100-01-31T08:00:00Z"


def test_keys_are_revoked_by_id_or_by_name_and_numbers_are_not_used_again(run):
    for name in ("bob", "bob", "eve"):
        made(run, name)
    assert json.loads(run("revoke", "key-3", "--json").stdout) == {"revoked": ["key-3"]}
    assert json.loads(run("revoke", "bob", "--json").stdout) == {"revoked": ["key-1", "key-2"]}
    assert json.loads(run("ls", "--json").stdout) == []
    assert made(run, "new")["id"] == "key-4"


def test_of_several_keys_none_is_revoked_when_one_is_not_there(run):
    made(run, "bob")
    run("revoke", "bob", "absent", code=1)
    assert len(json.loads(run("ls", "--json").stdout)) == 1


def test_the_list_is_for_people_too(run):
    made(run, "bob", "--table", "shop.orders")
    heading, line = run("ls").stdout.splitlines()
    assert heading.split() == ["id", "name", "created", "expires", "grants"]
    assert "bob" in line
    assert "shop.orders" in line


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["a b"], "space"),
        (["a/b"], "slash"),
        (["bob", "--role", "king"], "king"),
        (["bob", "--table", "orders"], "SOURCE.TABLE"),
        (["bob", "--rows", "shop.orders"], "SOURCE.TABLE=SQL"),
        (["bob", "--rows", "shop.orders="], "SOURCE.TABLE=SQL"),
        (["bob", "--rows", "shop.orders=id ="], "missing"),
        (["bob", "--table", "shop.a", "--rows", "shop.b=1"], "not among"),
        (["bob", "--expires", "soon"], "soon"),
        (["bob", "--expires", "2001-01-01"], "in the past"),
        (["bob", "--expires", "none"], "leave"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_named_and_nothing_is_made(run, options, named):
    assert named in run("create", *options, code=2).stderr
    assert json.loads(run("ls", "--json").stdout) == []


def test_a_data_directory_that_is_not_there_is_not_made(tmp_path):
    absent = tmp_path / "absent"
    done = CliRunner().invoke(token, ["ls", "--data-dir", str(absent)])
    assert "there is no data directory" in str(done.exception)
    assert not absent.exists()
