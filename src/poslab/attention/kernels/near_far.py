"""Causal attention with tables by distance in one kernel of Triton, and its gradients in three.

The tables tell near pairs apart. Far pairs, most of a long text, share one row of a table, so that their tiles need no
look-up and no mask. Gradients of the tables are sums along the diagonals of the scores, and one program owns each of
these: there are no atomic additions, and two runs are equal to the bit. Memory is linear in the length.

On a CPU the kernels run in Triton's interpreter, to be tested: TRITON_INTERPRET=1. None has been timed on a GPU yet.

B batch, H heads of queries, Hkv of keys, T tokens, Dh head dimension, K near distances (`near_far_kernels.py`).
"""

from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from poslab.attention.kernels.columns import number_of_each_key
from poslab.attention.kernels.near_far_launch import TILE, Call, Tensors, has_few_rows
from poslab.attention.kernels.near_tables import LOG2_E
from poslab.attention.once import once_differentiable
from poslab.attention.reference import AttentionSpec, for_queries, no_infinity, without_autocast
from poslab.errors import SettingError
from poslab.positions import RelativeTerms

_PROGRAMS = 512  # that sum gradients of tables, if there are so many tiles: four for each processor of an H200


@torch.compiler.assume_constant_result
def triton_problem(device: str) -> str | None:
    """Say why the kernels can't run on devices of this type; None: they can."""
    if find_spec("triton") is None:
        return "needs the package triton, which comes with torch for CUDA: python -m pip install triton"
    import triton

    if device == "cpu" and not triton.knobs.runtime.interpret:
        return "computes on CUDA; on a CPU only tests can run it, line by line, with TRITON_INTERPRET=1"
    return None if device in ("cpu", "cuda") else f"has no kernels for {device}"


def near_far_attention(q: Tensor, k: Tensor, v: Tensor, spec: AttentionSpec) -> Tensor:
    """Return attention of q (B, H, T, Dh) over k and v (B, Hkv, T, Dh), (B, H, T, Dh), in the dtype of v.

    The specification is causal, over a whole text, with bias, keys and values by distance, a bias of keys, and a
    window. A query that sees no key gets zeros. Products are in the inputs' precision, sums and softmax in 32 bits.

    Raises SettingError for what the kernels can't take.
    """
    _check(v)
    terms, key_bias = spec.terms, None
    with without_autocast(q.device):
        if spec.key_bias is not None or (terms is not None and terms.linear):
            key_bias = number_of_each_key(spec, q.shape[-2]).expand(-1, q.shape[1], -1)
        if terms is not None and terms.linear:  # its bias is among those of keys, and looked up nowhere
            terms = replace(terms, bias=None)
        near, bias, keys, values, far_value = _near_rows(terms, q.shape[-2], v.dtype)
        if k.shape[1] != v.shape[1] or (far_value is not None and len(far_value) > v.shape[1]):
            k, v = for_queries(q, k, v)
        if far_value is not None:  # which each weight multiplies
            v = v + far_value
        tables = bias, key_bias, keys, values
        numbers = spec.scale, near, spec.window or 0
        out: Tensor = _NearFar.apply(q.to(v.dtype), k.to(v.dtype), v, *tables, *numbers)
    return out


def _check(v: Tensor) -> None:
    """Raise SettingError for tensors that the kernels can't take."""
    if problem := triton_problem(v.device.type):
        raise SettingError("backend", "triton", problem)
    if v.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        raise SettingError("backend", "triton", f"computes in 16 or 32 bits, not in {v.dtype}".replace("torch.", ""))


def _near_rows(
    terms: RelativeTerms | None, length: int, dtype: torch.dtype
) -> tuple[int, Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
    """Return K; bias (H, K + 1) in float32, of which the last is that of far pairs; keys and values by distance
    ([H], K, Dh), less those of far pairs; and the value of far pairs, (1 or H, 1, Dh)."""
    if terms is None or not terms.tables:
        return 0, None, None, None, None
    highest = max(0, terms.highest)
    near = highest if highest < length - 1 else length  # a text without far pairs needs no row for them
    count = min(highest, near) + 1

    def rows(table: Tensor, dim: int) -> Tensor:
        """Return the rows of the distances 0, 1, 2, ..."""
        if terms.lowest <= 0 <= terms.highest:
            return table.narrow(dim, -terms.lowest, count)
        return table.index_select(dim, terms.rows_of(torch.arange(count)).to(table.device))

    def near_and_far(table: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
        if table is None:
            return None, None
        table = rows(table, -2)
        if near == length:
            return table[..., :near, :].to(dtype), None
        far = table[..., near:, :]
        return (table[..., :near, :] - far).to(dtype), far.reshape(-1, 1, far.shape[-1]).to(dtype)

    bias = None
    if terms.bias is not None:
        bias = F.pad(rows(terms.bias, -1).to(torch.float32), (0, near + 1 - count))
    keys, _ = near_and_far(terms.keys)  # those of far pairs add the same to all scores of a query
    return near, bias, keys, *near_and_far(terms.values)


class _NearFar(torch.autograd.Function):
    """Attention with the tables of `_near_rows`, and a bias of keys (B or 1, H, T)."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        bias: Tensor | None,
        key_bias: Tensor | None,
        keys: Tensor | None,
        values: Tensor | None,
        scale: float,
        near: int,
        window: int,
    ) -> Tensor:
        largest = tiles = None
        if bias is not None:
            largest = no_infinity(bias.cummax(-1).values)
            tiles = _bias_tiles(bias, q.shape[2], window)
        if key_bias is not None:  # the kernels raise 2 to the power of scores
            key_bias = key_bias * LOG2_E
        tensors = Tensors(q, k, v, bias, largest, tiles, key_bias, keys, values)
        out, log_sum = _attention(tensors, scale, near, window)
        ctx.save_for_backward(*tensors, out, log_sum)
        ctx.numbers = scale, near, window
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, ...]:
        *saved, out, log_sum = ctx.saved_tensors
        tensors, (_, near, _) = Tensors(*saved), ctx.numbers
        _, _, _, learns_bias, learns_key_bias, learns_keys, learns_values, *_ = ctx.needs_input_grad
        grad_q, grad_k, grad_v, mean, far, of_tokens = _gradients(tensors, out, log_sum, grad_out, *ctx.numbers)

        grad_bias = grad_key_bias = grad_keys = grad_values = None
        if learns_bias or learns_keys or learns_values:
            of_bias, of_keys, of_values = _table_sums(tensors, log_sum, mean, grad_out, *ctx.numbers)
            if tensors.bias is not None:
                of_near = _by_distance(_diagonal_sums(of_bias.sum((0, 3))), near)
                grad_bias = torch.cat([of_near, far.sum((0, 2))[:, None]], -1)
            grad_keys = _vector_gradient(of_keys, tensors.keys, near)
            grad_values = _vector_gradient(of_values, tensors.values, near)
        if learns_key_bias and tensors.key_bias is not None:
            grad_key_bias = of_tokens.sum_to_size(tensors.key_bias.shape).to(tensors.key_bias.dtype)
        return grad_q, grad_k, grad_v, grad_bias, grad_key_bias, grad_keys, grad_values, None, None, None


def _bias_tiles(bias: Tensor, length: int, window: int) -> Tensor:
    """Return the bias (H, K + 1) of each pair of a tile, for the diagonals of tiles that near pairs are read from.

    (H, diagonals, TILE, TILE), by query and key; -inf where the query doesn't see the key. The first diagonal is that
    of the keys after the queries, which begins a kernel's tile of more queries than TILE.
    """
    near = bias.shape[-1] - 1
    # A kernel's tile with near pairs has up to 2 TILE queries and TILE keys.
    diagonals = min(-(-(near + 3 * TILE) // TILE), -(-length // TILE)) + 1
    place = torch.arange(TILE, device=bias.device)
    first = TILE * torch.arange(-1, diagonals, device=bias.device)[:, None, None]
    distance = first + place[:, None] - place  # (diagonals, TILE, TILE)
    hidden = distance < 0
    if window:
        hidden = hidden | (distance >= window)
    return bias[:, distance.clamp(0, near)].masked_fill(hidden, -torch.inf)


# Gradients of tables


def _vector_gradient(sums: Tensor, table: Tensor | None, near: int) -> Tensor | None:
    """Return the gradient of keys or values by distance ([H], K, Dh), of what programs have summed,
    (B, H, diagonals, splits, rows, Dh); None without a table."""
    if table is None:
        return None
    of_diagonals = sums.sum((0, 3))
    few = has_few_rows(near)  # of which each diagonal has all
    grad = of_diagonals.sum(1)[:, :near] if few else _by_distance(of_diagonals, near)
    if table.dim() == 2:  # which heads share
        grad = grad.sum(0)
    return grad.to(table.dtype)


def _diagonal_sums(tiles: Tensor) -> Tensor:
    """Return the sums of tiles (..., m, m) by distance of query and key, (..., 2 m): 1 - m, ..., m - 1, and a zero.

    Rows that each begin one number further back are cut from the padded ones, as in `sdpa.skewed`.
    """
    size = tiles.shape[-1]
    rows = F.pad(tiles.flip(-1), (0, size)).flatten(-2)[..., : size * (2 * size - 1)]
    return F.pad(rows.unflatten(-1, (size, 2 * size - 1)).sum(-2), (0, 1))


def _by_distance(of_diagonals: Tensor, near: int) -> Tensor:
    """Add up the rows of all diagonals of tiles, (H, diagonals, 2 m, ...), by distance, (H, K, ...).

    Diagonal c has the distances (c - 1) m + 1 .. (c + 1) m: the later half of them are the next one's earlier half.
    """
    earlier, later = of_diagonals.chunk(2, dim=2)
    heads, diagonals, size, *more = later.shape
    total = later.new_zeros(heads, diagonals + 1, size, *more)
    total[:, :-1] += earlier
    total[:, 1:] += later
    return total.flatten(1, 2)[:, size - 1 :][:, :near]


# Operators of their own, which torch.compile takes as they are: the fields of Tensors, and what else they name.


@torch.library.custom_op("poslab::near_far", mutates_args=())
def _attention(tensors: Sequence[Tensor | None], scale: float, near: int, window: int) -> tuple[Tensor, Tensor]:
    """Return attention (B, H, T, Dh), and its log-sum-exp (B, H, T) in powers of two."""
    call = Call(_named(tensors), scale, near, window)
    out, log_sum = _outputs(tensors)
    programs = log_sum[..., 0].numel() * call.tiles("forward")
    call.launch("forward", programs, out_ptr=out, log_sum_ptr=log_sum)
    return out, log_sum


@_attention.register_fake
def _(tensors: Sequence[Tensor | None], scale: float, near: int, window: int) -> tuple[Tensor, Tensor]:
    return _outputs(tensors)


def _outputs(tensors: Sequence[Tensor | None]) -> tuple[Tensor, Tensor]:
    q = _named(tensors).q
    return _by_token(q), q.new_empty(q.shape[:3], dtype=torch.float32)


@torch.library.custom_op("poslab::near_far_gradients", mutates_args=())
def _gradients(
    tensors: Sequence[Tensor | None],
    out: Tensor,
    log_sum: Tensor,
    grad_out: Tensor,
    scale: float,
    near: int,
    window: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of q, k and v; the mean of the weights' gradients of each query (B, H, T); and sums of the
    scores' gradients, over far pairs (B, H, tiles), and over the queries of each key (B, H, T)."""
    call = Call(_named(tensors), scale, near, window)
    grads = _empty_gradients(tensors, log_sum, near, window)
    grad_q, grad_k, grad_v, mean, far, of_tokens = grads
    call.give_by_token(grad_out=grad_out)
    call.given |= {"log_sum_ptr": log_sum, "mean_ptr": mean}
    programs = call.batch * call.form.heads * call.tiles("query_gradients")
    call.launch("query_gradients", programs, out_ptr=out, grad_q_ptr=grad_q)
    programs = call.batch * call.form.shared_heads * call.tiles("key_gradients")
    own = {"grad_k_ptr": grad_k, "grad_v_ptr": grad_v, "grad_far_ptr": far, "grad_key_bias_ptr": of_tokens}
    call.launch("key_gradients", programs, **own)
    return grads


@_gradients.register_fake
def _(
    tensors: Sequence[Tensor | None],
    out: Tensor,
    log_sum: Tensor,
    grad_out: Tensor,
    scale: float,
    near: int,
    window: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    return _empty_gradients(tensors, log_sum, near, window)


def _empty_gradients(
    tensors: Sequence[Tensor | None], log_sum: Tensor, near: int, window: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    named = _named(tensors)
    grad_q, grad_k, grad_v = (_by_token(x) for x in (named.q, named.k, named.v))
    far = log_sum.new_empty(*log_sum.shape[:2], Call(named, 1.0, near, window).tiles("key_gradients"))
    return grad_q, grad_k, grad_v, torch.empty_like(log_sum), far, torch.empty_like(log_sum)


@torch.library.custom_op("poslab::near_far_table_sums", mutates_args=())
def _table_sums(
    tensors: Sequence[Tensor | None],
    log_sum: Tensor,
    mean: Tensor,
    grad_out: Tensor,
    scale: float,
    near: int,
    window: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return what the programs of `table_gradients` sum up, (B, H, diagonals, splits, ...), for bias, keys and values;
    without numbers for tables that aren't there."""
    call = Call(_named(tensors), scale, near, window)
    call.give_by_token(grad_out=grad_out)
    call.given |= {"log_sum_ptr": log_sum, "mean_ptr": mean}
    sums = _empty_sums(call, log_sum)
    of_bias, of_keys, of_values = sums
    own = {"grad_bias_ptr": of_bias, "grad_keys_ptr": of_keys, "grad_values_ptr": of_values}
    diagonals, splits = _parts_of_tables(call)
    programs = call.batch * call.form.heads * diagonals * splits
    call.launch("table_gradients", programs, **own, diagonals=diagonals, splits=splits)
    return sums


@_table_sums.register_fake
def _(
    tensors: Sequence[Tensor | None],
    log_sum: Tensor,
    mean: Tensor,
    grad_out: Tensor,
    scale: float,
    near: int,
    window: int,
) -> tuple[Tensor, Tensor, Tensor]:
    return _empty_sums(Call(_named(tensors), scale, near, window), log_sum)


def _empty_sums(call: Call, like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    form, tile = call.form, call.form.tile("table_gradients")
    size = call.batch, form.heads, *_parts_of_tables(call)
    vectors = form.rows(tile), form.head_dim
    of_bias = like.new_empty(*size, tile.queries, tile.queries if form.bias else 0)
    of_keys = like.new_empty(*size, *vectors if form.keys else (0,))
    of_values = like.new_empty(*size, *vectors if form.values else (0,))
    return of_bias, of_keys, of_values


def _parts_of_tables(call: Call) -> tuple[int, int]:
    """Return how many diagonals of tiles have near pairs, and how many programs sum each, so that a GPU is busy."""
    near, tiles = call.form.near, call.tiles("table_gradients")
    diagonals = min(tiles, -(-(near - 1) // call.form.tile("table_gradients").queries) + 1) if near > 0 else 0
    return diagonals, max(1, min(tiles, _PROGRAMS // max(1, call.batch * call.form.heads * diagonals)))


def _named(tensors: Sequence[Tensor | None]) -> Tensors:
    return Tensors(*tensors)  # type: ignore[arg-type]


def _by_token(like: Tensor) -> Tensor:
    """Allocate a tensor (B, H, T, Dh) that lies in memory as (B, T, H, Dh), from which heads are joined as they are."""
    batch, heads, length, head_dim = like.shape
    return like.new_empty(batch, length, heads, head_dim).transpose(1, 2)
