"""Launch of the kernels of `near_far_kernels.py`: what they are compiled for, their tiles, and their arguments.

B batch, H heads of queries, Hkv of keys, T tokens, Dh head dimension, K near distances.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from poslab.attention.kernels.near_tables import LOG2_E

TILE = 64  # queries and keys of a tile of biases: tiles of kernels are parts of it, or have queries of two
KERNELS = "forward", "query_gradients", "key_gradients", "table_gradients"
_FEW_ROWS = 64  # of keys and values by distance, up to which a tile takes all rows and not those of its distances


@dataclass(frozen=True)
class Tile:
    """Tile of a kernel: its queries and keys, the warps that compute it, and how many are loaded ahead."""

    queries: int
    keys: int
    warps: int
    stages: int


# Compute capabilities that kernels are tiled for, and the shared memory, KiB, that a program may have there. Of 8.x
# it is that of 8.6 and 8.9; 8.0 has 163.
SHARED_MEMORY = {90: 227, 80: 99}
INTERPRETED = 0  # on a CPU, which has no registers to spill, and the fewest steps with the largest tiles

# By numbers and GPU, by kernel, and by keys and values by distance: none, few rows, or those of the tile's distances.
# For heads of up to 64 and of up to 128. None has been timed yet: in 16 bits these are the largest of those tried that
# spill no registers (scripts/maintenance/compile_kernels.py). Products of float32 have no matrix units, so that their
# tiles are small.
TILES = {
    ("16 bits, 9.0", "forward", "none"): (Tile(128, 64, 8, 3), Tile(64, 64, 8, 2)),
    ("16 bits, 9.0", "forward", "few"): (Tile(128, 64, 8, 3), Tile(128, 64, 8, 3)),
    ("16 bits, 9.0", "forward", "many"): (Tile(64, 64, 8, 2), Tile(64, 64, 8, 2)),
    ("16 bits, 9.0", "query_gradients", "none"): (Tile(128, 64, 8, 2), Tile(64, 64, 8, 2)),
    ("16 bits, 9.0", "query_gradients", "few"): (Tile(128, 64, 8, 2), Tile(64, 32, 4, 2)),
    ("16 bits, 9.0", "query_gradients", "many"): (Tile(64, 32, 8, 2), Tile(16, 32, 4, 2)),
    ("16 bits, 9.0", "key_gradients", "none"): (Tile(64, 64, 8, 2), Tile(32, 64, 8, 2)),
    ("16 bits, 9.0", "key_gradients", "few"): (Tile(64, 64, 8, 1), Tile(64, 32, 8, 2)),
    ("16 bits, 9.0", "key_gradients", "many"): (Tile(32, 64, 8, 2), Tile(32, 32, 8, 2)),
    ("16 bits, 9.0", "table_gradients", "none"): (Tile(64, 64, 8, 1), Tile(64, 64, 8, 1)),
    ("16 bits, 9.0", "table_gradients", "few"): (Tile(64, 64, 8, 1), Tile(32, 32, 8, 1)),
    ("16 bits, 9.0", "table_gradients", "many"): (Tile(32, 32, 8, 1), Tile(16, 16, 8, 1)),
    ("16 bits, 8.0", "forward", "none"): (Tile(128, 64, 8, 3), Tile(64, 64, 8, 2)),
    ("16 bits, 8.0", "forward", "few"): (Tile(128, 64, 8, 3), Tile(64, 64, 8, 2)),
    ("16 bits, 8.0", "forward", "many"): (Tile(32, 32, 4, 2), Tile(32, 32, 4, 2)),
    ("16 bits, 8.0", "query_gradients", "none"): (Tile(64, 32, 8, 2), Tile(64, 64, 8, 2)),
    ("16 bits, 8.0", "query_gradients", "few"): (Tile(64, 32, 8, 2), Tile(32, 32, 8, 2)),
    ("16 bits, 8.0", "query_gradients", "many"): (Tile(32, 32, 8, 2), Tile(32, 32, 8, 2)),
    ("16 bits, 8.0", "key_gradients", "none"): (Tile(32, 64, 8, 2), Tile(64, 64, 8, 2)),
    ("16 bits, 8.0", "key_gradients", "few"): (Tile(32, 64, 8, 2), Tile(32, 64, 8, 2)),
    ("16 bits, 8.0", "key_gradients", "many"): (Tile(32, 32, 8, 2), Tile(32, 32, 8, 2)),
    ("16 bits, 8.0", "table_gradients", "none"): (Tile(32, 32, 8, 1), Tile(32, 32, 8, 1)),
    ("16 bits, 8.0", "table_gradients", "few"): (Tile(64, 64, 8, 1), Tile(32, 32, 8, 1)),
    ("16 bits, 8.0", "table_gradients", "many"): (Tile(32, 32, 8, 1), Tile(32, 32, 8, 1)),
    ("32 bits", "forward", "none"): (Tile(32, 32, 8, 1), Tile(16, 16, 8, 1)),
    ("32 bits", "forward", "few"): (Tile(32, 32, 8, 1), Tile(16, 16, 8, 1)),
    ("32 bits", "forward", "many"): (Tile(32, 32, 8, 1), Tile(16, 16, 8, 1)),
    ("32 bits", "query_gradients", "none"): (Tile(32, 32, 8, 1), Tile(16, 16, 8, 1)),
    ("32 bits", "query_gradients", "few"): (Tile(32, 32, 8, 1), Tile(16, 16, 8, 1)),
    ("32 bits", "query_gradients", "many"): (Tile(16, 16, 8, 1), Tile(16, 16, 8, 1)),
    ("32 bits", "key_gradients", "none"): (Tile(16, 32, 8, 1), Tile(16, 16, 8, 1)),
    ("32 bits", "key_gradients", "few"): (Tile(32, 32, 8, 1), Tile(16, 16, 8, 1)),
    ("32 bits", "key_gradients", "many"): (Tile(16, 16, 8, 1), Tile(16, 16, 4, 1)),
    ("32 bits", "table_gradients", "none"): (Tile(32, 32, 8, 1), Tile(16, 16, 8, 1)),
    ("32 bits", "table_gradients", "few"): (Tile(32, 32, 8, 1), Tile(16, 16, 8, 1)),
    ("32 bits", "table_gradients", "many"): (Tile(16, 16, 8, 1), Tile(16, 16, 8, 1)),
}


def tiled_for(device: torch.device) -> int:
    """Return the compute capability, one of `SHARED_MEMORY`, whose tiles a device runs, or `INTERPRETED`."""
    if device.type != "cuda":
        return INTERPRETED
    # Hopper and the data centre's Blackwell; 12.0 has the shared memory of 8.6.
    major, _ = torch.cuda.get_device_capability(device)
    return 90 if major in (9, 10) else 80


def has_few_rows(near: int) -> bool:
    """Return whether a tile has all near rows of keys and values by distance, of which there are few."""
    return near <= _FEW_ROWS


@dataclass(frozen=True)
class Form:
    """What kernels are compiled for: the GPU, sizes of a token, numbers, and which tables there are."""

    capability: int  # one of SHARED_MEMORY, or INTERPRETED
    dtype: torch.dtype
    heads: int
    shared_heads: int  # of keys and values
    head_dim: int
    near: int
    bias: bool
    key_bias: bool
    keys: bool
    values: bool
    window: bool

    def tile(self, kernel: str) -> Tile:
        """Return the tile of a kernel."""
        small, large = TILES[self.tile_name(kernel)]
        return small if self.head_dim <= 64 else large

    def tile_name(self, kernel: str) -> tuple[str, str, str]:
        """Return by what a kernel's tiles are found in `TILES`."""
        vectors = "none"
        if self.keys or self.values:
            vectors = "many" if self.slides else "few"
        if self.capability == INTERPRETED:
            return "16 bits, 9.0", kernel, vectors
        numbers = "32 bits" if self.dtype.itemsize > 2 else f"16 bits, {self.capability / 10}"
        return numbers, kernel, vectors

    @property
    def slides(self) -> bool:
        """Whether the rows of a tile are those of its distances; else they are all."""
        return not has_few_rows(self.near)

    def rows(self, tile: Tile) -> int:
        """Return how many rows of keys and values by distance are at hand for a tile, a power of two."""
        rows = tile.queries + tile.keys - 1 if self.slides else self.near
        return max(16, _power_of_two(rows))

    def constants(self, kernel: str) -> dict[str, Any]:
        """Return the arguments of a kernel that are known when it is compiled."""
        tile = self.tile(kernel)
        blocks = {"BLOCK_M": tile.queries, "BLOCK_N": tile.keys, "STAGES": tile.stages}
        if kernel == "table_gradients":
            blocks = {"BLOCK": tile.queries}
        return blocks | {
            "TILE": TILE,
            "HEADS": self.heads,
            "GROUP": self.heads // self.shared_heads,
            "HEAD_DIM": self.head_dim,
            "BLOCK_D": max(16, _power_of_two(self.head_dim)),
            "ROWS": self.rows(tile),
            "SLIDING": self.slides,
            "HAS_BIAS": self.bias,
            "HAS_KEY_BIAS": self.key_bias,
            "HAS_KEYS": self.keys,
            "HAS_VALUES": self.values,
            "HAS_WINDOW": self.window,
            # Three products of 10 binary digits ("tf32x3") have those of float32, too, but spill registers in all tiles
            # that keep a whole head; 16 bits have no choice.
            "PRECISION": "ieee" if self.dtype == torch.float32 else "tf32",
        }


class Tensors(NamedTuple):
    """Tensors of a call. bias, largest and key_bias are what the kernels' equations name so."""

    q: Tensor  # (B, H, T, Dh)
    k: Tensor  # (B, Hkv, T, Dh)
    v: Tensor
    bias: Tensor | None  # (H, K + 1)
    largest: Tensor | None  # (H, K + 1), the largest bias up to each distance
    bias_tiles: Tensor | None  # (H, diagonals, TILE, TILE)
    key_bias: Tensor | None  # (B or 1, H, T) in float64, in powers of two
    keys: Tensor | None  # ([H], K, Dh)
    values: Tensor | None


class Call:
    """Launches of kernels for the same tensors. window: 0 where there is none."""

    def __init__(self, tensors: Tensors, scale: float, near: int, window: int) -> None:
        q, k, v, bias, largest, bias_tiles, key_bias, keys, values = tensors
        self.form = Form(
            capability=tiled_for(q.device),
            dtype=q.dtype,
            heads=q.shape[1],
            shared_heads=k.shape[1],
            head_dim=q.shape[3],
            near=near,
            bias=bias is not None,
            key_bias=key_bias is not None,
            keys=keys is not None,
            values=values is not None,
            window=window > 0,
        )
        self.batch, self.length = len(q), q.shape[2]
        self.given: dict[str, Any] = {"length": self.length, "near": near, "window": window}
        self.given |= {"scale": scale * LOG2_E, "grad_scale": scale}
        self.give_by_token(q=q, k=k, v=v)
        # What isn't there is not read, wherever it points to.
        numbers = {"bias": bias, "largest": largest, "bias_tiles": bias_tiles, "key_bias": key_bias}
        for name, table in numbers.items():
            self.given[f"{name}_ptr"] = q if table is None else table.contiguous()
        self.given["bias_tiles_h"] = 0 if bias_tiles is None else bias_tiles[0].numel()
        self.given["key_bias_b"] = 0 if key_bias is None or len(key_bias) == 1 else key_bias[0].numel()
        for name, table in (("keys", keys), ("values", values)):
            table = q[0] if table is None else table.contiguous()
            self.given |= {f"{name}_ptr": table, f"{name}_h": table.stride(0) if table.dim() == 3 else 0}

    def give_by_token(self, **tensors: Tensor) -> None:
        """Add tensors (B, H, T, Dh) and their strides to the arguments of all kernels."""
        for name, x in tensors.items():
            if x.stride(3) != 1 or x.shape[2] * x.stride(2) >= 2**31:  # kernels count a text's numbers in 32 bits
                x = x.contiguous()
            self.given |= {
                f"{name}_ptr": x,
                f"{name}_b": x.stride(0),
                f"{name}_h": x.stride(1),
                f"{name}_t": x.stride(2),
            }

    def tiles(self, kernel: str) -> int:
        """Return how many tiles of a text a kernel's programs own: of keys for `key_gradients`, else of queries."""
        tile = self.form.tile(kernel)
        return -(-self.length // (tile.keys if kernel == "key_gradients" else tile.queries))

    def launch(self, kernel: str, programs: int, **own: Any) -> None:
        """Run so many programs of a kernel, with arguments of its own."""
        from poslab.attention.kernels import near_far_kernels

        if programs == 0:
            return
        constants, tile = self.form.constants(kernel), self.form.tile(kernel)
        if self.given["q_ptr"].device.type == "cpu":
            constants["PRECISION"] = "interpreted"
        function = getattr(near_far_kernels, kernel)
        arguments = {name: value for name, value in (self.given | own).items() if name in function.arg_names}
        with torch.cuda.device_of(self.given["q_ptr"]):
            function[(programs,)](**arguments, **constants, num_warps=tile.warps, num_stages=tile.stages)


def _power_of_two(number: int) -> int:
    """Return the least power of two that is no less."""
    return 1 << max(0, number - 1).bit_length()
