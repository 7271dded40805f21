"""A setting that is documented does something."""

import re

from towline.runtime.settings import Settings

from .trees import ROOT, sources

_MODEL = "towline/runtime/settings_model.py"


def test_every_setting_is_read_somewhere() -> None:
    words: set[str] = set()
    for source in sources():
        if not source.is_test and str(source.path) != _MODEL:
            words |= set(re.findall(r"\.([a-z][a-z0-9_]+)\b", (ROOT / source.path).read_text(encoding="utf-8")))
    keys = set(Settings.model_fields) - {"ignored"}  # not a key: what a broker.conf said that means nothing here
    assert sorted(keys - words) == []
