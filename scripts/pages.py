"""Make the finished pages of data/learn/pages, and their pictures on the front page: `python scripts/pages.py`.

Trains what they show into runs/, unless it is there: about six minutes on two cores. Pictures need the extra "browser".
"""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES, PICTURES = Path("data/learn/pages"), Path(".github/pictures")
SIZES = {"explanation": (1200, 910), "report": (1200, 570)}  # pixels of the first screen that a picture shows
_EXPERIMENTS = ("three_back", "ablation")


def make(runs: Path, to: Path, *settings: str) -> None:
    """Train both experiments into `runs`, and write explanation.html and report.html into `to`. settings: of the
    trainings, so that they can be small."""
    for experiment in _EXPERIMENTS:
        _run("train", "-m", f"experiment={experiment}", f"run_dir={runs / experiment}", *settings)
    to.mkdir(parents=True, exist_ok=True)
    _run("explain", str(runs / "three_back"), f"out={to / 'explanation.html'}")
    _run("compare", str(runs / "ablation"))
    shutil.copy(runs / "ablation" / "report" / "report.html", to)
    for page in to.glob("*.html"):  # paths of this machine's checkout are of no use elsewhere
        page.write_text(page.read_text(encoding="utf-8").replace(f"{ROOT}/", ""), encoding="utf-8")


def _run(script: str, *arguments: str) -> None:
    subprocess.run([sys.executable, f"scripts/{script}.py", *arguments], cwd=ROOT, check=True)


def draw(pages: Path, to: Path, names: Sequence[str] = tuple(SIZES)) -> None:
    """Take a picture of each page's first screen."""
    from playwright.sync_api import sync_playwright

    executable = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        for name in names:
            width, height = SIZES[name]
            page = browser.new_page(viewport={"width": width, "height": height})
            page.goto((pages / f"{name}.html").resolve().as_uri())
            page.screenshot(path=to / f"{name}.png")
        browser.close()


if __name__ == "__main__":
    make(Path("runs"), ROOT / PAGES)
    draw(ROOT / PAGES, ROOT / PICTURES)
