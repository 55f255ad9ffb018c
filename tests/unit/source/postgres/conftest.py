"""Both ways to take the rows of a stream, for the tests that must hold for each."""

import pytest

from tailrace.source.postgres import frame, table_shape, transactions


@pytest.fixture(params=["pure", "compiled"])
def rows(request, monkeypatch):
    """Run a test with each way. The compiled one is left out where it was not built."""
    if request.param == "pure":
        for module in (frame, table_shape, transactions):
            monkeypatch.setattr(module, "compiled", None)
    elif frame.compiled is None:
        pytest.skip("the compiled helper was not built, or is switched off")
    return request.param
