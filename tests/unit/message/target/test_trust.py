"""Certificates are trusted as a sink says."""

import ssl

import pytest

from tailrace.message.target.trust import is_untrusted, trusting
from tailrace.model.errors import SinkRefusedError


@pytest.mark.parametrize("authority", [None, ""])
def test_without_a_file_the_authorities_of_the_system_are_trusted(authority):
    context = trusting(authority)
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)


@pytest.mark.parametrize("there", [True, False])
def test_a_file_without_certificates_is_refused(tmp_path, there):
    file = tmp_path / "authority.pem"
    if there:
        file.write_text("nothing of the kind")
    with pytest.raises(SinkRefusedError, match="holds no certificates"):
        trusting(str(file))


def test_a_certificate_that_is_not_trusted_is_recognised_behind_other_errors():
    outer = OSError("closed")
    outer.__cause__ = ConnectionError("no")
    outer.__cause__.__context__ = ssl.SSLCertVerificationError("self-signed")
    assert is_untrusted(outer)
    assert not is_untrusted(ConnectionError("no"))
    assert not is_untrusted(None)


def test_errors_that_lead_back_to_each_other_are_looked_at_once():
    one, other = OSError("one"), OSError("other")
    one.__cause__, other.__cause__ = other, one
    assert not is_untrusted(one)
