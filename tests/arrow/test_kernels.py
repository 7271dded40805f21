"""When the kernels are loaded, and what becomes of a read that cannot have them."""

import importlib
from typing import Any

import numpy as np
import pytest

from towline.arrow import kernels
from towline.arrow.columns import COLUMNS
from towline.arrow.decode import batches, chosen
from towline.arrow.selection import Selection
from towline.format.record.record import SIZE_MIN

from .logs import BASE, array, message, rows, segment

LOG = segment(map(message, range(300)))


def read(**how: Any) -> list[dict[str, Any]]:
    return rows(batches(array(LOG), BASE, 0, len(LOG), COLUMNS, Selection(), **how))


def test_a_long_read_loads_them_once_and_a_short_one_never(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[None] = []
    monkeypatch.setattr(kernels, "_loaded", [])
    monkeypatch.setattr(kernels, "load", lambda: loaded.append(None))
    read()
    assert not loaded
    monkeypatch.setattr(kernels, "LONG_READ", len(LOG))
    read()
    assert loaded == [None]
    read()
    assert loaded == [None], "what cannot be had is not asked for again"


def test_positions_count_as_the_least_that_their_records_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[None] = []
    at = np.array([row["commitLogOffset"] - BASE for row in read()[:100]])
    monkeypatch.setattr(kernels, "_loaded", [])
    monkeypatch.setattr(kernels, "load", lambda: loaded.append(None))
    monkeypatch.setattr(kernels, "LONG_READ", SIZE_MIN * 100)
    for count, wanted in ((99, 0), (100, 1)):
        list(chosen(array(LOG), BASE, at[:count], COLUMNS))
        assert len(loaded) == wanted


@pytest.mark.parametrize("error", [ImportError("numba"), RuntimeError("no locator"), PermissionError(13, "no")])
def test_where_they_cannot_be_loaded_numpy_does_it(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = read()

    def refuse(name: str) -> None:
        raise error

    monkeypatch.setattr(kernels, "_loaded", [])
    monkeypatch.setattr(kernels, "LONG_READ", 0)
    monkeypatch.setattr(importlib, "import_module", refuse)
    assert read() == expected
    assert kernels.loaded() is None


def test_a_kernel_that_has_moved_is_no_missing_library(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(importlib, "import_module", refuse)
    with pytest.raises(ModuleNotFoundError, match=r"towline\.kernels"):
        kernels.load()
