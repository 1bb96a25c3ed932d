"""Position schemes as torch modules, for models of one's own. Loads torch, and nothing of the laboratory.

named.py       the well-known schemes by their own names
position.py    `Position`, a module of any scheme: bias, flex's score_mod, rotation, embeddings, by explicit positions
bias.py        the bias of each pair of positions, where a scheme is one
attention.py   `Attention` by any scheme, in linear memory
masks.py       its mask, for the caches of transformers, and for packed batches

Layout is (B, H, T, Dh). Keys and values may have fewer heads than queries. No module keeps anything between calls.
"""

from poslab.nn.attention import Attention
from poslab.nn.masks import text_mask
from poslab.nn.named import ALiBi, Cope, Fire, Kerple, Rotary, Shaw, T5Bias
from poslab.nn.position import Position

__all__ = ["ALiBi", "Attention", "Cope", "Fire", "Kerple", "Position", "Rotary", "Shaw", "T5Bias", "text_mask"]
