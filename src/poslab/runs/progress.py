"""What a run has to take up again, beyond what Lightning keeps, to go on to the bit and to the line."""

import os
import random
from typing import Any

import numpy as np
import torch

from poslab.runs.folder import RunFolder


def random_states() -> dict[str, Any]:
    """The state of every generator that a model or a scheme may draw from, in plain containers."""
    name, keys, *rest = tuple(np.random.get_state(legacy=True))
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "python": random.getstate(),
        "numpy": [name, torch.as_tensor(np.asarray(keys, dtype=np.int64)), *rest],
    }


def restore_random_states(states: dict[str, Any]) -> None:
    """The inverse of `random_states`; GPUs that are not there any more are left out."""
    torch.set_rng_state(states["torch"].cpu())
    for device, state in enumerate(states["cuda"][: torch.cuda.device_count()]):
        torch.cuda.set_rng_state(state.cpu(), device)
    version, internal, gauss = states["python"]
    random.setstate((version, tuple(internal), gauss))
    name, keys, *rest = states["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))


def event_sizes(run: RunFolder) -> dict[str, int]:
    """How far TensorBoard's files of the run are written, in bytes by name."""
    return {path.name: path.stat().st_size for path in run.events}


def rewind_events(run: RunFolder, sizes: dict[str, int]) -> None:
    """Cuts off what was logged after `sizes` were taken: it will be logged again."""
    for path in run.events:
        size = sizes.get(path.name)
        if size is None or path.is_symlink():
            path.unlink()
        elif path.stat().st_size > size:
            os.truncate(path, size)
