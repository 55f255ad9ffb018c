"""Facts about JWKS files."""

import os

import pytest

from signing import jwk, jwks
from tailrace.access.jwks import JwksFile, read_jwks
from tailrace.model.errors import ConfigError
from tailrace.testing.clock import FakeClock


def test_keys_for_other_uses_are_left_out():
    document = jwks(
        jwk(),
        jwk(kid="encryption", use="enc"),
        jwk(kid="other algorithm", alg="RS512"),
        {"kty": "oct", "k": "c2VjcmV0", "kid": "secret"},
        jwk(1, kid="rs256", alg="RS256"),
    )
    assert set(read_jwks(document)) == {"one", "rs256"}


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"[]",
        b"{}",
        b'{"keys":[]}',
        b'{"keys":[{"kty":"RSA"}]}',
        b'{"keys":[{"kty":"RSA","n":"x","e":7}]}',
        b"\xff",
    ],
)
def test_what_is_no_jwks_document_is_a_mistake_in_the_configuration(document):
    with pytest.raises(ConfigError, match="jwks_file"):
        read_jwks(document)


def test_a_file_that_was_replaced_is_read_anew_and_a_damaged_one_is_not(tmp_path):
    clock, path = FakeClock(), tmp_path / "jwks.json"
    path.write_bytes(jwks(jwk()))
    file = JwksFile(path, clock)
    replace(path, jwks(jwk(1, kid="two")))
    assert set(file.keys()) == {"one"}
    clock.advance(1)
    assert set(file.keys()) == {"two"}
    replace(path, b"damaged")
    clock.advance(1)
    assert set(file.keys()) == {"two"}
    path.unlink()
    clock.advance(1)
    assert set(file.keys()) == {"two"}


def test_a_file_that_is_not_there_is_a_mistake_in_the_configuration(tmp_path):
    with pytest.raises(ConfigError, match="cannot read"):
        JwksFile(tmp_path / "absent", FakeClock())


def replace(path, data):
    new = path.with_name("new")
    new.write_bytes(data)
    os.utime(new, ns=(0, path.stat().st_mtime_ns + 1))
    new.replace(path)
