"""Set where the project is hosted, once and in every file that names it.

    python scripts/maintenance/address.py SOMEONE/NAME

The address before is that of `[project.urls]` in pyproject.toml. A test holds that all files name the same.
"""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
GITHUB = "https://github.com/"


def current_address() -> str:
    """Return OWNER/NAME of pyproject.toml's repository on GitHub."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["urls"]["Repository"]).removeprefix(GITHUB)


def set_address(address: str) -> list[str]:
    """Write the address in place of the current one, and return the files that named it."""
    before = current_address()
    search = ["git", "grep", "--untracked", "-IlF", before]
    found = subprocess.run(search, cwd=REPOSITORY, capture_output=True, text=True, check=False).stdout.split("\n")
    files = [file for file in found if file]
    for file in files:
        text = (REPOSITORY / file).read_text(encoding="utf-8")
        (REPOSITORY / file).write_text(text.replace(before, address), encoding="utf-8")
    return files


if __name__ == "__main__":
    address = " ".join(sys.argv[1:]).removeprefix(GITHUB)
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", address):
        sys.exit(f"error: {address}: must be OWNER/NAME of a repository on GitHub")
    print(*set_address(address), sep="\n")
