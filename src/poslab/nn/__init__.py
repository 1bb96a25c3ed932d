"""Position schemes as torch modules, for models of one's own. Loads torch, and nothing of the laboratory.

named.py       the well-known schemes by their own names
position.py    `Position`, a module of any scheme: bias, flex's score_mod, rotation, embeddings, by explicit positions
bias.py        the bias of each pair of positions, where a scheme is one
attention.py   `Attention` by any scheme, in linear memory
masks.py       its mask, for the caches of transformers, and for packed batches

Layout is (B, H, T, Dh). Keys and values may have fewer heads than queries. No module keeps anything between calls.
"""

from typing import Any

from poslab.errors import nearest
from poslab.nn.attention import Attention
from poslab.nn.masks import text_mask
from poslab.nn.named import ALiBi, Cope, Fire, Kerple, Rotary, Shaw, T5Bias
from poslab.nn.position import Position

__all__ = ["ALiBi", "Attention", "Cope", "Fire", "Kerple", "Position", "Rotary", "Shaw", "T5Bias", "text_mask"]


def __getattr__(name: str) -> Any:
    """Raise AttributeError, with the name by which what is meant is here: RoPE is Rotary."""
    by_name = {own.lower(): own for own in __all__}
    by_name |= {
        kind._scheme.__name__.lower(): kind.__name__ for kind in (ALiBi, Cope, Fire, Kerple, Rotary, Shaw, T5Bias)
    }
    meant = nearest(name, by_name)
    advice = f"; did you mean {by_name[meant]}?" if meant else ""
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{advice}")
