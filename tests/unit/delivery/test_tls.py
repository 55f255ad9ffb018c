"""Facts about the settings of TLS."""

import ssl

import pytest

from certificates import Authority
from tailrace.delivery.tls import TlsConfig, tls_context
from tailrace.model.errors import ConfigError


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("tls"))


def test_without_a_certificate_there_is_no_tls():
    assert tls_context(TlsConfig(), ["h2"]) is None


def test_a_client_needs_a_certificate_only_where_somebody_signs_them(authority):
    files = authority.sign("server")
    assert tls_context(TlsConfig(*files), ["h2"]).verify_mode is ssl.CERT_NONE
    assert tls_context(TlsConfig(*files, authority.file), ["h2"]).verify_mode is ssl.CERT_REQUIRED


def test_old_versions_are_not_spoken(authority):
    context = tls_context(TlsConfig(*authority.sign("server")), ["h2"])
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2


def test_files_that_are_not_there_or_do_not_belong_together_are_a_mistake(authority):
    cert, key = authority.sign("server")
    _, other = authority.sign("other")
    for config, named in [
        (TlsConfig("/absent", key), "tls.cert: cannot read '/absent'"),
        (TlsConfig(cert, "/absent"), "tls.key: cannot read '/absent'"),
        (TlsConfig(cert, other), "tls.cert"),
        (TlsConfig(key, key), "tls.cert"),
        (TlsConfig(cert, key, "/absent"), "tls.client_ca: cannot read '/absent'"),
        (TlsConfig(cert, key, key), "tls.client_ca"),
    ]:
        with pytest.raises(ConfigError, match=named):
            tls_context(config, ["h2"])
