"""Style of a page, as text of CSS."""

from pathlib import Path

from seedstats.page.looks import dark_rules, properties

_RULES = Path(__file__).with_name("style.css")


def style() -> str:
    """Return the stylesheet that all pages share, with the colours of names, light and dark."""
    dark = f":root{{{properties(dark=True)}}}{dark_rules()}"
    rules = _RULES.read_text(encoding="utf-8")
    return f":root{{{properties(dark=False)}}}@media screen and (prefers-color-scheme: dark){{{dark}}}\n{rules}"
