"""Arguments of `scheme_attention` that don't fit together: one line that names the argument."""

import math
from typing import Any

import pytest
import torch

from poslab.attention import scheme_attention
from poslab.errors import SettingError
from poslab.positions import ModelShape
from poslab.positions.canon import Canon
from poslab.positions.forgetting import Forgetting
from poslab.positions.music import MusicTransformer
from poslab.positions.xpos import XPos

H, DH = 4, 6


def test_arguments_of_scheme_attention_that_do_not_fit() -> None:
    gate = {"gate": torch.zeros(2, H, H * DH), "bias": torch.zeros(2, H)}
    x, (q, k, v) = torch.zeros(1, 8, H * DH), torch.zeros(3, 1, H, 8, DH)
    right: dict[str, Any] = {"scheme": Forgetting(), "tables": gate, "q": q, "k": k, "v": v, "x": x, "num_layers": 2}
    scheme_attention(**right)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"k": torch.zeros(1, H, 9, DH)}, r"k=\[1,4,9,6\]: must be as q, \[1, 4, 8, 6\]"),
        ({"x": None}, "x=null: Forgetting looks at what enters attention"),
        ({"scheme": Canon(), "x": None}, "x=null: Canon mixes what enters attention"),
        ({"positions": torch.arange(5)}, "positions=.*one for each of the 8 tokens"),
        ({"positions": torch.arange(8).expand(3, -1)}, "positions=3 rows: must be one row, or one for each of the 1"),
        *(({"dropout_p": p}, "dropout_p=.* must be at least 0 and below 1") for p in (1.0, -0.1, math.nan)),
        (
            {"scheme": XPos(), "tables": {}, "positions": torch.arange(39_997, 40_005)},
            "positions=up to 40004: this position scheme knows 32768 ",
        ),
        (
            {"scheme": MusicTransformer(), "tables": MusicTransformer().tables(ModelShape(7, H * DH, 2, H))},
            "tokens=8 long: these tables know 7 positions, no more",
        ),
    ]
    for change, problem in wrong:
        with pytest.raises(SettingError, match=rf"^{problem}"):
            scheme_attention(**(right | change))
