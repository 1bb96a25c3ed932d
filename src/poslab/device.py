"""Where scripts compute."""

import torch

from poslab.errors import SettingError


def choose_device(name: str) -> str:
    """auto, cpu or cuda -> cpu or cuda. Raises SettingError for a GPU that torch doesn't see."""
    if name == "cuda" and not torch.cuda.is_available():
        raise SettingError("device", name, "torch sees no GPU; valid here: auto, cpu")
    return "cuda" if name == "auto" and torch.cuda.is_available() else name.replace("auto", "cpu")
