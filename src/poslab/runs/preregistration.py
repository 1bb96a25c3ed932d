"""contrasts.yaml in the folder of a sweep: what was claimed, when, and after how many runs. Loads no torch."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from poslab.config.contrasts import Contrast, parse_contrast
from poslab.config.files import write_whole
from poslab.errors import UserError
from poslab.runs.folder import CONTRASTS, RunFolder


@dataclass(frozen=True)
class Registration:
    """Contrasts that were registered together. finished_runs: how many of the sweep's were finished by then."""

    date: str
    finished_runs: int
    contrasts: list[Contrast]

    @property
    def plain(self) -> dict[str, Any]:
        contrasts = [contrast.plain for contrast in self.contrasts]
        return {"registered": self.date, "finished_runs": self.finished_runs, "contrasts": contrasts}


def read_registrations(folder: Path) -> list[Registration]:
    """In the order in which they were made; none where the folder has none. Raises UserError for a file that holds
    something else."""
    file = folder / CONTRASTS
    if not file.exists():
        return []
    try:
        return [_registration(plain) for plain in yaml.safe_load(file.read_text(encoding="utf-8"))]
    except (OSError, KeyError, TypeError, ValueError, yaml.YAMLError) as error:
        raise UserError(f"{file}: can't be read as registered contrasts: {' '.join(str(error).split())}") from error


def _registration(plain: Any) -> Registration:
    contrasts = [parse_contrast(node, f"contrasts[{place}]") for place, node in enumerate(plain["contrasts"])]
    return Registration(str(plain["registered"]), int(plain["finished_runs"]), contrasts)


def runs_finished(count: int) -> str:
    return f"{count} runs were finished" if count != 1 else "1 run was finished"


def register(folder: Path, contrasts: Sequence[Contrast]) -> str:
    """Adds those that aren't registered yet, takes none away, and says what is registered in one line."""
    earlier = read_registrations(folder)
    known = [contrast for registration in earlier for contrast in registration.contrasts]
    new = [contrast for contrast in dict.fromkeys(contrasts) if contrast not in known]
    if new:
        finished = sum(RunFolder(path).finished for path in folder.iterdir()) if folder.is_dir() else 0
        earlier.append(Registration(time.strftime("%Y-%m-%d %H:%M:%S"), finished, new))
        folder.mkdir(parents=True, exist_ok=True)
        content = [registration.plain for registration in earlier]
        write_whole(folder / CONTRASTS, yaml.safe_dump(content, sort_keys=False, allow_unicode=True))
        late = f", {len(new)} of them only now, after {runs_finished(finished)}" if finished else ""
    else:
        late = ""
    kept = len(known) - sum(contrast in known for contrast in dict.fromkeys(contrasts))
    late += f", {kept} of them earlier, which stay" if kept else ""
    return f"contrasts: {len(known) + len(new)} registered in {folder / CONTRASTS}{late}"
