"""Both ways to encode a payload and to find changes, for the tests that must hold for each."""

import pytest

from tailrace.log import find, payload


@pytest.fixture(params=["pure", "compiled"])
def encoder(request, monkeypatch):
    """Run a test with each encoder. The compiled one is left out where it was not built."""
    if request.param == "pure":
        monkeypatch.setattr(payload, "compiled", None)
    elif payload.compiled is None:
        pytest.skip("the compiled helper was not built, or is switched off")
    return request.param


@pytest.fixture(params=["pure", "compiled"])
def finder(request, monkeypatch):
    """Run a test with each way to find changes. The compiled one is left out where it was not built."""
    if request.param == "pure":
        monkeypatch.setattr(find, "compiled", None)
    elif find.compiled is None:
        pytest.skip("the compiled helper was not built, or is switched off")
    return request.param
