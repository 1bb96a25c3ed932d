"""The finished pages of data/learn/pages."""

import re
from pathlib import Path

import pytest
from common import REPOSITORY

from pages import PAGES, PICTURES, make

FINISHED = sorted((REPOSITORY / PAGES).glob("*.html"))


@pytest.mark.parametrize("page", FINISHED, ids=lambda page: page.name)
def test_a_finished_page_is_a_single_file(page: Path) -> None:
    """It is small enough to be opened from a repository, and the front page leads to it with its picture."""
    text = page.read_text(encoding="utf-8")
    assert len(text.encode()) < 700_000
    assert not re.findall(r"""(?:src|href)=["'](?!#|data:)[^"']*""", text)
    assert not re.findall(r"/(?:home|root|tmp|Users)/", text)
    front = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert str(PAGES / page.name) in front
    assert str(PICTURES / f"{page.stem}.png") in front


@pytest.mark.slow
def test_finished_pages_can_be_made_again(tmp_path: Path) -> None:
    make(tmp_path / "runs", tmp_path / "pages", "trainer.max_steps=4", "model.embed_dim=32")
    pages = {page.name: page.read_text(encoding="utf-8") for page in (tmp_path / "pages").iterdir()}
    assert pages.keys() == {"explanation.html", "report.html"}
    assert all(text.count("<figure") > 5 for text in pages.values())
