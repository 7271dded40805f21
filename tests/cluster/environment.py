"""Environment files, read as systemd and compose do."""

import re
from collections.abc import Mapping


def parse_environment(text: str) -> Mapping[str, str]:
    found = {}
    for line in text.splitlines():
        key, _, value = line.partition("=")
        quoted = value.startswith('"')
        found[key] = re.sub(r"\\(.)", r"\1", value[1:-1]) if quoted else value
    return found
