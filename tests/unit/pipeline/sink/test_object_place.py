"""What a sink's URL and the environment say of a place in object storage."""

import pickle

import pytest

from tailrace.model.errors import ConfigError
from tailrace.pipeline.sink.object_place import OPTIONS, SECRET_OPTIONS, is_object_path, object_place

KEY = {"access_key_id": "id", "secret_access_key": "s3cret"}
VARIABLES = {"AWS_ACCESS_KEY_ID": "of-variable", "AWS_SECRET_ACCESS_KEY": "v-s3cret", "AWS_SESSION_TOKEN": "v-token"}


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("s3://lake", "s3://lake"),
        ("s3://lake/", "s3://lake"),
        ("s3://lake//a//{table}/", "s3://lake/a/{table}"),
        ("gs://lake/a b", "gs://lake/a b"),
        ("az://lake/x", "az://lake/x"),
    ],
)
def test_a_place_is_a_bucket_and_a_prefix(path, shown):
    assert is_object_path(path)
    assert str(object_place(path, {}, {})) == shown


@pytest.mark.parametrize("path", ["/lake/{table}", "lake", "file:///lake", "s3:/lake", "http://lake/x"])
def test_other_paths_are_none(path):
    assert not is_object_path(path)


def test_options_go_before_variables_and_those_before_the_profile(tmp_path):
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(
        "[default]\naws_access_key_id = of-file\naws_secret_access_key = f-s3cret\n"
        "[other]\naws_access_key_id = of-other\naws_secret_access_key = o-s3cret\naws_session_token = o%token\n"
    )
    (tmp_path / ".aws" / "config").write_text("[default]\nregion = of-config\n[profile other]\nregion = eu-9\n")
    home = {"HOME": str(tmp_path)}

    def found(options, environment):
        settings = object_place("s3://lake", options, environment).settings
        return settings.get("aws_access_key_id"), settings.get("aws_session_token"), settings["aws_region"]

    assert found(KEY, {**home, **VARIABLES}) == ("id", None, "of-config")
    assert found({}, {**home, **VARIABLES, "AWS_REGION": "r"}) == ("of-variable", "v-token", "r")
    assert found({}, {**home, "AWS_DEFAULT_REGION": "d"}) == ("of-file", None, "d")
    assert found({}, {**home, "AWS_PROFILE": "other"}) == ("of-other", "o%token", "eu-9")
    assert found({"region": "mine"}, home) == ("of-file", None, "mine")
    assert found({}, {}) == (None, None, "us-east-1")
    assert found({}, {"AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / ".aws" / "credentials")})[0] == "of-file"


def test_a_profile_without_a_key_and_a_file_that_is_none_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="AWS_PROFILE names 'sso', which has no access key"):
        object_place("s3://lake", {}, {"AWS_PROFILE": "sso"})
    broken = tmp_path / "credentials"
    broken.write_text("s3cret\n[x")
    with pytest.raises(ConfigError, match="is no file of AWS profiles") as refused:
        object_place("s3://lake", {}, {"AWS_SHARED_CREDENTIALS_FILE": str(broken)})
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize("half", [{"access_key_id": "id"}, {"secret_access_key": "s3cret"}])
def test_half_a_key_is_refused_even_where_the_environment_has_one(half):
    with pytest.raises(ConfigError, match="two parts") as refused:
        object_place("s3://lake", half, VARIABLES)
    assert "s3cret" not in str(refused.value)


def test_all_libraries_are_given_the_same_settings():
    place = object_place("s3://lake/x", {**KEY, "endpoint": "http://127.0.0.1:1", "region": "r"}, {})
    given = {"id", "s3cret", "http://127.0.0.1:1", "r"}
    assert given <= set(place.for_delta.values())
    assert given == set(place.for_obstore["config"].values())
    assert given <= set(place.for_iceberg.values())
    assert (place.for_delta["allow_http"], place.for_obstore["client_options"]["allow_http"]) == ("true", True)
    assert place.for_delta["AWS_CONDITIONAL_PUT"] == "etag"


def test_only_an_endpoint_that_says_so_is_reached_without_tls():
    for environment in ({}, {"AWS_ENDPOINT_URL": "https://s3.example"}):
        assert object_place("s3://lake", KEY, environment).for_delta["allow_http"] == "false"
    named = {"AWS_ENDPOINT_URL": "https://all", "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:1"}
    assert object_place("s3://lake", KEY, named).is_plain_http


def test_secrets_are_not_shown_and_places_can_be_handed_to_tasks():
    place = object_place("s3://lake/a", KEY, {}).below("b/c")
    assert "s3cret" not in f"{place!r} {place}"
    assert (str(place), pickle.loads(pickle.dumps(place))) == ("s3://lake/a/b/c", place)


def test_secret_options_are_options():
    assert set(SECRET_OPTIONS) <= {name for options in OPTIONS.values() for name in options}
