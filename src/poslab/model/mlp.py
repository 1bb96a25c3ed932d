"""MLPs of a block: D -> hidden -> D, (B, T, D) -> (B, T, D).

The linear map at the end is called `project`, so that it begins smaller, as all maps to the residual stream.
"""

from torch import Tensor, nn
from torch.nn import functional as F


class GELU(nn.Module):
    """Two linear maps with a GELU between them, in the tanh form of GPT-2."""

    def __init__(self, embed_dim: int, factor: float = 4) -> None:
        super().__init__()
        hidden = round(factor * embed_dim)
        self.expand = nn.Linear(embed_dim, hidden)
        self.project = nn.Linear(hidden, embed_dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.project(F.gelu(self.expand(x), approximate="tanh"))


class ReLU2(GELU):
    """Two linear maps with the square of a ReLU between them (So et al. 2021, "Primer", arXiv 2109.08668)."""

    def forward(self, x: Tensor) -> Tensor:
        return self.project(F.relu(self.expand(x)).square())


class SwiGLU(nn.Module):
    """One half of the first map, after a SiLU, times the other half (Shazeer 2020, arXiv 2002.05202).

    Three matrices of D x 8/3 D have as many parameters as two of D x 4 D; the width is a multiple of 8.
    """

    def __init__(self, embed_dim: int, factor: float = 8 / 3) -> None:
        super().__init__()
        hidden = 8 * max(1, round(factor * embed_dim / 8))
        self.expand = nn.Linear(embed_dim, 2 * hidden)
        self.project = nn.Linear(hidden, embed_dim)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.expand(x).chunk(2, -1)
        return self.project(F.silu(gate) * up)
