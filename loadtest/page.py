"""A page in one file with pictures inside, and how pictures of this package look."""

import base64
import html
from typing import Any, Final

PLOT: Final[dict[Any, Any]] = {"font.size": 9, "axes.grid": True, "grid.alpha": 0.3, "axes.spines.top": False}
_STYLE: Final = """body{font:14px sans-serif;max-width:70em;margin:2em auto}td,th{padding:.15em .8em;text-align:left}
img{max-width:100%}"""


def page(title: str, body: str) -> str:
    """`body` is HTML."""
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{text(title)}</title>
<style>{_STYLE}</style>
<h1>{text(title)}</h1>
{body}</html>
"""


def picture(png: bytes, alt: str) -> str:
    return f'<img alt="{text(alt)}" src="data:image/png;base64,{base64.b64encode(png).decode()}">'


def text(value: object) -> str:
    return html.escape(f"{value:.3f}" if isinstance(value, float) else str(value))
