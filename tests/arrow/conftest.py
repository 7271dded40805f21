"""Every test of this folder runs twice: with numpy alone, as on an executor without numba, and with the kernels."""

from collections.abc import Iterator

import pytest

from towline.arrow import quick


@pytest.fixture(scope="module", params=["numpy", "kernels"], autouse=True)
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quick, "_asked", [quick.load() if request.param == "kernels" else None])
        yield request.param
