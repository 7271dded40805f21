"""`python -m peers.quote`: README quotes the last full run, which is kept in loadtest/results."""

import json
from pathlib import Path
from typing import Final

from towline.start import home

from .report import quoted

KEPT: Final = Path("loadtest/results/peers.json")
README: Final = Path("README.md")


def main() -> None:
    readme = home() / README
    result = json.loads((home() / KEPT).read_text(encoding="utf-8"))
    readme.write_text(quoted(readme.read_text(encoding="utf-8"), result), encoding="utf-8")


if __name__ == "__main__":
    main()
