"""A scheme's tables as they were before the first step, kept in its run folder: what they have become says how far
training moved them, and which of their numbers it reached at all."""

from collections.abc import Mapping

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor

from poslab.config.files import write_whole
from poslab.runs.folder import RunFolder

_PREFIX = "position_tables."  # of their names in a model


def write_start(run: RunFolder, tables: Mapping[str, Tensor]) -> None:
    """Raises OSError where the file can't be written."""
    write_whole(run.start, save({name: table.detach().cpu().contiguous() for name, table in tables.items()}))


def start_and_best(run: RunFolder) -> dict[str, tuple[Tensor, Tensor]]:
    """Each table before the first step and of the best weights; none where either is not known."""
    try:
        start = load_file(run.start)
        with safe_open(run.best, framework="pt") as best:
            pairs = {name: (table, best.get_tensor(_PREFIX + name)) for name, table in start.items()}
    except (OSError, SafetensorError):
        return {}
    return pairs if all(before.shape == now.shape for before, now in pairs.values()) else {}
