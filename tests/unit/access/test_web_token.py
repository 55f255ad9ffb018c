"""Facts about web tokens."""

import base64
import hmac
import json

import jwt
import pytest
from cryptography.hazmat.primitives import serialization

from signing import NOW_S, SECRET, hs256, jwk, jwks, rs256, rsa_key
from tailrace.access.gate import looks_like_web_token
from tailrace.access.jwks import read_jwks
from tailrace.access.web_token import WebTokenOptions, WebTokens
from tailrace.model.errors import ConfigError, UnauthenticatedError
from tailrace.testing.clock import FakeClock


def tokens(public_keys=None, now_s=NOW_S, **options):
    clock = FakeClock(now_us=now_s * 1_000_000)
    options = WebTokenOptions(**{"secret": SECRET, **options})
    return WebTokens(options, clock) if public_keys is None else WebTokens(options, clock, lambda: public_keys)


def refused(verifier, token):
    with pytest.raises(UnauthenticatedError) as caught:
        verifier.verify(token)
    assert caught.value.expired is (str(caught.value) == "Authentication token has expired.")
    return str(caught.value)


MISSING = "Authentication required. Provide a Bearer token or API key."
EXPIRED = "Authentication token has expired."


def test_a_token_says_who_calls_and_what_they_may():
    principal = tokens().verify(
        hs256(
            tenant_id="acme",
            role="Viewer",
            capabilities=["write"],
            namespaces=["shop"],
            tables=["shop.orders"],
            rows={"shop.orders": "customer_id = 7"},
        )
    )
    assert (principal.id, principal.tenant) == ("alice", "acme")
    assert principal.capabilities == {"read", "view_metrics", "write"}
    assert principal.namespaces == {"shop"}
    assert principal.tables == {"shop.orders"}
    assert principal.rows == {"shop.orders": "customer_id = 7"}
    assert principal.expires_time_us == (NOW_S + 160) * 1_000_000


def test_a_token_without_more_is_of_the_default_tenant_and_reads():
    principal = tokens().verify(hs256())
    assert (principal.tenant, principal.capabilities, principal.namespaces) == ("default", {"read"}, {"default"})


def test_named_capabilities_are_all_that_a_token_without_a_role_has():
    assert tokens().verify(hs256(capabilities=[])).capabilities == frozenset()
    assert tokens().verify(hs256(capabilities=["write"])).capabilities == {"write"}


@pytest.mark.parametrize(
    ("now_s", "text"),
    [
        (NOW_S + 99, None),
        (NOW_S + 159, None),
        (NOW_S + 160, EXPIRED),
        (NOW_S + 10**6, EXPIRED),
    ],
)
def test_a_token_lives_until_a_minute_after_its_end(now_s, text):
    if text is None:
        tokens(now_s=now_s).verify(hs256())
    else:
        assert refused(tokens(now_s=now_s), hs256()) == text


BAD = {
    "wrong signature": hs256(secret=b"another secret of thirty-two bytes!!"),
    "no exp": hs256(exp=...),
    "no sub": hs256(sub=...),
    "empty sub": hs256(sub=""),
    "long sub": hs256(sub="x" * 129),
    "long tenant": hs256(tenant_id="x" * 81),
    "sub is a number": hs256(sub=7),
    "exp is text": hs256(exp="soon"),
    "exp is true": hs256(exp=True),
    "exp is infinite": hs256(exp=float("inf")),
    "exp is not a number": hs256(exp=float("nan")),
    "exp is long ago beyond all times": hs256(exp=-1e300),
    "not valid yet": hs256(nbf=NOW_S + 61),
    "nbf is text": hs256(nbf="x"),
    "capabilities is text": hs256(capabilities="read"),
    "rows is a list": hs256(rows=["x"]),
    "rows of a table that is not granted": hs256(tables=["a.b"], rows={"a.c": "1"}),
    "table without a source": hs256(tables=["orders"]),
    "namespaces holds a number": hs256(namespaces=[1]),
    "tenant is a number": hs256(tenant_id=1),
    "role is a list": hs256(role=["owner"]),
    "three dots and nothing": "..",
    "not base64": "a.b.c",
    "header is a list": base64.urlsafe_b64encode(b"[]").decode() + ".e30.x",
    "unknown critical header": hs256(headers={"crit": ["x"], "x": 1}),
    "HS512": jwt.encode({"sub": "a", "exp": NOW_S + 9}, SECRET * 2, "HS512"),
    "no algorithm": jwt.encode({"sub": "a", "exp": NOW_S + 9}, None, "none"),
    "not ASCII": "ü.ü.ü",
    "surrogates": "\udcff.a.b",
}


@pytest.mark.parametrize("token", BAD.values(), ids=BAD)
def test_whatever_is_wrong_with_a_token_is_told_alike(token):
    assert refused(tokens(read_jwks(jwks(jwk()))), token) == MISSING


def test_a_token_that_is_changed_anywhere_is_refused():
    token = hs256()
    for place in range(0, len(token) - 1, 7):
        letter = "A" if token[place] != "A" else "B"
        refused(tokens(), token[:place] + letter + token[place + 1 :])


def test_a_token_may_begin_within_the_leeway():
    assert tokens().verify(hs256(nbf=NOW_S + 60)).id == "alice"


@pytest.mark.parametrize(
    ("options", "claims", "good"),
    [
        ({}, {"iss": "x", "aud": "y"}, True),
        ({"issuer": "us"}, {"iss": "us"}, True),
        ({"issuer": "us"}, {"iss": "them"}, False),
        ({"issuer": "us"}, {}, False),
        ({"audience": "cdc"}, {"aud": "cdc"}, True),
        ({"audience": "cdc"}, {"aud": ["x", "cdc"]}, True),
        ({"audience": "cdc"}, {"aud": "x"}, False),
        ({"audience": "cdc"}, {}, False),
    ],
)
def test_issuer_and_audience_are_checked_where_they_are_configured(options, claims, good):
    if good:
        tokens(**options).verify(hs256(**claims))
    else:
        assert refused(tokens(**options), hs256(**claims)) == MISSING


def test_an_rs256_token_is_verified_by_the_key_that_it_names():
    keys = read_jwks(jwks(jwk(), jwk(1, kid="two")))
    assert tokens(keys).verify(rs256()).id == "alice"
    assert tokens(keys).verify(rs256(1, "two")).id == "alice"
    for token in (rs256(1, "one"), rs256(0, "three"), rs256(kid=None)):
        assert refused(tokens(keys), token) == MISSING


def test_a_token_that_names_no_key_is_verified_by_the_only_one():
    assert tokens(read_jwks(jwks(jwk()))).verify(rs256(kid=None)).id == "alice"


def test_a_public_key_is_never_taken_for_a_secret():
    public = rsa_key().public_key()
    pem = public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    header = {"alg": "HS256", "kid": "one", "typ": "JWT"}
    first, second = (
        base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=")
        for part in (header, {"sub": "eve", "exp": NOW_S + 9})
    )
    signature = base64.urlsafe_b64encode(hmac.digest(pem, first + b"." + second, "sha256")).rstrip(b"=")
    forged = b".".join([first, second, signature]).decode()
    keys = read_jwks(jwks(jwk()))
    assert refused(tokens(keys), forged) == MISSING
    assert refused(tokens(keys, secret=b""), forged) == MISSING


def test_without_a_secret_or_without_public_keys_that_algorithm_is_refused():
    assert refused(tokens(secret=b""), hs256()) == MISSING
    assert refused(tokens(), rs256()) == MISSING


def test_a_short_secret_is_a_mistake_in_the_configuration():
    with pytest.raises(ConfigError, match="32 bytes"):
        tokens(secret=b"short")


def test_what_has_three_parts_looks_like_a_web_token():
    assert looks_like_web_token(hs256())
    assert not any(map(looks_like_web_token, ("", "a.b", "a.b.c.d")))
