"""Facts about what is said of a server that starts."""

from tailrace.config import SETTINGS, Config, load_config
from tailrace.startup import shown_settings, versions


def test_defaults_are_not_shown():
    assert shown_settings(Config()) == {}


def test_no_secret_is_shown():
    secrets = {setting.variable: "hush-hush" for setting in SETTINGS if setting.secret}
    urls = {"TAILRACE_METADATA_URL": "mysql://u:hush-hush@h/m", "TAILRACE_HOST": "0.0.0.0"}
    shown = shown_settings(load_config(None, {**secrets, **urls}, {}))
    assert (shown["host"], shown["metadata_url"]) == ("0.0.0.0", "mysql://u:***@h/m")
    assert "hush-hush" not in str(shown)
    assert {setting.path for setting in SETTINGS if setting.secret} <= shown.keys()


def test_the_versions_are_those_that_run():
    assert all(versions().values())
