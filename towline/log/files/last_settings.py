"""`run/settings.json`: the settings of the node that last ran on a store. Each start writes it anew."""

import json
from typing import Any

from towline.places import Store


def last_settings(store: Store) -> dict[str, Any]:
    """Empty without the file, or where a crash or damage left no JSON object in it."""
    try:
        found = json.loads(store.settings.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
