"""Facts about the names and pages that a server serves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.delivery.site import Site, check_site, only_one
from tailrace.model.errors import ConfigError, HostRefusedError, InvalidRequestError, OriginRefusedError

OPEN = Site()
CONFIGURED = Site(["Tailrace.internal", "*.example.com", "10.0.0.7"], ["https://app.example", "null"])
EVERYBODY = Site(["*"], ["*"])
GUARDED = Site(guarded=True)


def serves(site, authority, local="127.0.0.1"):
    try:
        site.check_host(authority, local)
    except HostRefusedError:
        return False
    return True


def admits(site, origin, authority="localhost:8080", scheme="http", fetch_site=None):
    try:
        site.check_origin(origin, authority, scheme, fetch_site)
    except OriginRefusedError:
        return False
    return True


@pytest.mark.parametrize(
    "authority",
    [
        "localhost",
        "LOCALHOST:8080",
        "localhost.:8080",
        "app.localhost:3000",
        "127.0.0.1:1",
        "127.9.9.9",
        "[::1]:8080",
        "[0:0:0:0:0:0:0:1]",
        "[::ffff:127.0.0.1]:80",
        None,
    ],
)
def test_loopback_names_are_served_on_any_port(authority):
    assert serves(OPEN, authority)


@pytest.mark.parametrize(
    "authority",
    [
        "evil.example",
        "evil.example:8080",
        "localhost.evil.example",
        "evillocalhost",
        "127.0.0.1.evil.example",
        "127.0.0.1@evil.example",
        "localhost:80@evil.example",
        "localhost:8080:8080",
        "localhost:",
        "localhost/evil",
        "localhost\\evil",
        "[::1",
        "::1",
        "[]",
        "",
        " localhost",
        "10.0.0.7",
        "[fe80::1]",
        "0.0.0.0",
        "a" * 100_000,
    ],
)
def test_other_names_are_not(authority):
    assert not serves(OPEN, authority)
    assert serves(GUARDED, authority)
    assert serves(EVERYBODY, authority)


def test_the_address_that_a_connection_came_to_is_a_name_of_the_server():
    assert serves(OPEN, "192.168.1.5:8080", local="192.168.1.5")
    assert not serves(OPEN, "192.168.1.5:8080", local="192.168.1.6")
    assert serves(OPEN, "[fe80::1]:8080", local="fe80::1%eth0")
    assert serves(OPEN, "10.0.0.1", local="::ffff:10.0.0.1")


def test_so_is_what_it_listens_on():
    assert serves(Site(listening="box.lan"), "BOX.lan:8080")
    assert serves(Site(listening="0.0.0.0"), "0.0.0.0:8080")
    assert serves(Site(listening="::"), "[::]:8080")


@pytest.mark.parametrize(
    ("authority", "served"),
    [
        ("tailrace.internal:8080", True),
        ("TAILRACE.INTERNAL.", True),
        ("a.example.com", True),
        ("a.b.example.com:1", True),
        ("example.com", False),
        ("aexample.com", False),
        ("10.0.0.7:80", True),
        ("10.0.0.8:80", False),
    ],
)
def test_configured_names_are_served_and_no_other(authority, served):
    assert serves(CONFIGURED, authority) is served
    assert serves(Site(["tailrace.internal", "*.example.com", "10.0.0.7"], guarded=True), authority) is served


@pytest.mark.parametrize(
    ("origin", "authority", "scheme", "same"),
    [
        ("http://localhost:8080", "localhost:8080", "http", True),
        ("http://LOCALHOST:8080", "localhost:8080", "http", True),
        ("http://localhost", "localhost:80", "http", True),
        ("http://[::1]:8080", "[::1]:8080", "http", True),
        ("https://cdc.example", "cdc.example", "http", True),
        ("https://cdc.example", "cdc.example:443", "https", True),
        ("http://cdc.example", "cdc.example", "https", False),
        ("http://localhost:3000", "localhost:8080", "http", False),
        ("http://localhost", "localhost:8080", "http", False),
        ("http://127.0.0.1:8080", "localhost:8080", "http", False),
        ("https://evil.example", "localhost:8080", "http", False),
        ("http://localhost:8080.evil.example", "localhost:8080", "http", False),
        ("http://localhost:8080@evil.example", "localhost:8080", "http", False),
        ("ftp://localhost:8080", "localhost:8080", "http", False),
        ("null", "localhost:8080", "http", False),
        ("", "localhost:8080", "http", False),
        ("http://localhost:8080", None, "http", False),
    ],
)
def test_only_pages_of_the_same_origin_may_call(origin, authority, scheme, same):
    assert admits(OPEN, origin, authority, scheme) is same
    assert admits(GUARDED, origin, authority, scheme)
    assert admits(EVERYBODY, origin, authority, scheme)


@pytest.mark.parametrize(
    ("origin", "admitted"),
    [
        ("https://app.example", True),
        ("https://APP.example:443", True),
        ("http://app.example", False),
        ("https://app.example:8443", False),
        ("https://app.example.evil.example", False),
        ("null", True),
    ],
)
def test_configured_origins_may_call_with_and_without_authentication(origin, admitted):
    assert admits(CONFIGURED, origin) is admitted
    assert admits(Site((), ["https://app.example", "null"], guarded=True), origin) is admitted


@pytest.mark.parametrize(
    ("fetch_site", "admitted"),
    [(None, True), ("none", True), ("same-origin", True), ("same-site", False), ("cross-site", False), ("new", False)],
)
def test_without_an_origin_the_browser_says_whose_page_it_is(fetch_site, admitted):
    assert admits(OPEN, None, fetch_site=fetch_site) is admitted
    assert admits(CONFIGURED, None, fetch_site=fetch_site) is admitted
    assert admits(GUARDED, None, fetch_site=fetch_site)


@given(st.text(max_size=40), st.text(max_size=40))
def test_any_text_is_judged(authority, origin):
    serves(CONFIGURED, authority)
    admits(CONFIGURED, origin, authority)


@pytest.mark.parametrize("host", ["http://a", "a:80", "a/b", "", "*.*", "a b", "-a", "*a"])
def test_what_is_no_name_cannot_be_configured(host):
    with pytest.raises(ConfigError, match="allowed_hosts"):
        check_site([host], [])


@pytest.mark.parametrize("origin", ["app.example", "https://app.example/", "https://", "https://a@b", "", "https://*"])
def test_what_is_no_origin_cannot_be_configured(origin):
    with pytest.raises(ConfigError, match="allowed_origins"):
        check_site([], [origin])


def test_names_addresses_and_origins_can_be():
    check_site(
        ["a", "a.b", "*.b", "10.0.0.1", "::1", "[::1]", "*"],
        ["https://a", "http://a:3000", "http://[::1]:3000", "tauri://localhost", "null", "*"],
    )


def test_a_header_that_comes_twice_is_refused():
    assert only_one([], "Host") is None
    assert only_one(["a"], "Host") == "a"
    with pytest.raises(InvalidRequestError, match="2 headers Host"):
        only_one(["a", "a"], "Host")
