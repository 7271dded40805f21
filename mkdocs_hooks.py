"""For `make docs`: pages that stand outside docs/ become part of the site, and links lead to where a page is there.

Pages are written for who reads them in the repository: their links are paths in it. A link to a file that is no page of
the site, as a module, keeps its text alone; one that leads nowhere stays, and fails the strict build.
"""

import posixpath
import re
from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).parent
DOCS: Final = "docs/"
# Path in the repository -> where it is in the site's sources.
OUTSIDE: Final = {
    "README.md": "index.md",
    **{name: name for name in ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")},
    **{f"loadtest/results/{name}": f"results/{name}" for name in ("NOTES.md", "figures.json", "peers.json")},
    **{f"examples/{path.name}": f"examples/{path.name}" for path in sorted((ROOT / "examples").glob("*.[mp][dy]"))},
}
_ITEM: Final = re.compile(r"(?:[-*]|\d+\.) ")
# Code stays as it is; what begins first is taken.
_CODE: Final = r"^```.*?^```$|`[^`\n]+`"
_LINK: Final = r"\[(?P<said>(?:[^\[\]]|\[[^\[\]]*\])*)\]\((?!\w+:|#)(?P<target>[^()\s#]+)(?P<anchor>#[^()\s]*)?\)"
_CODE_OR_LINK: Final = re.compile(rf"{_CODE}|{_LINK}", re.MULTILINE | re.DOTALL)


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    for path, place in OUTSIDE.items():
        files.append(File.generated(config, place, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    here = page.file.src_uri
    return linked(spaced(markdown), next((path for path, place in OUTSIDE.items() if place == here), DOCS + here), here)


def spaced(text: str) -> str:
    """The text with an empty line before each list, without which Markdown for Python takes it for a paragraph."""
    lines, first, is_code = [], "", False  # `first` of the paragraph
    for line in text.splitlines():
        is_code ^= line.startswith("```")
        if not is_code and _ITEM.match(line) and first and not _ITEM.match(first):
            lines.append("")
            first = ""
        lines.append(line)
        first = line.strip() and (first or line)
    return "\n".join(lines)


def linked(text: str, path: str, here: str) -> str:
    """The text of the page `path` of the repository, which is `here` in the site."""

    def lead(found: re.Match[str]) -> str:
        if found["target"] is None:
            return found[0]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), found["target"]))
        place = OUTSIDE.get(target) or (target.removeprefix(DOCS) if target.startswith(DOCS) else None)
        if place is None:
            return found["said"] if (ROOT / target).exists() else found[0]
        return f"[{found['said']}]({posixpath.relpath(place, posixpath.dirname(here) or '.')}{found['anchor'] or ''})"

    return _CODE_OR_LINK.sub(lead, text)
