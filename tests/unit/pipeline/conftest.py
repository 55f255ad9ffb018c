"""What tests of pipelines share."""

import pytest

from tailrace.pipeline import image_columns


@pytest.fixture(params=["pure", "compiled"])
def decoder(request, monkeypatch):
    """Run a test with each decoder of images. The compiled one is left out where it was not built."""
    if request.param == "pure":
        monkeypatch.setattr(image_columns, "compiled", None)
    elif image_columns.compiled is None:
        pytest.skip("the compiled helper was not built, or is switched off")
    return request.param
