"""Every test of this folder runs twice: with numpy alone, as on an executor without numba, and with the kernels."""

from collections.abc import Iterator

import pytest

from towline.arrow import kernels


@pytest.fixture(scope="module", params=["numpy", "kernels"], autouse=True)
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        found = kernels.load() if request.param == "kernels" else None
        assert (found is not None) == (request.param == "kernels"), "both ways are tested only where numba is there"
        patch.setattr(kernels, "_loaded", [found])
        yield request.param
