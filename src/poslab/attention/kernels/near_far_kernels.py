"""Kernels of `near_far.py`, in Triton: causal attention with tables by distance, and its gradients.

A query i and a key j are d = i - j apart. The tables tell the distances 0 .. K - 1 apart (near pairs). From K on all
pairs are alike (far pairs): for them the keys and values of the tables are zero, and the bias is one number, bias[K].

    S[i, j] = scale * q_i . (k_j + keys[d]) + bias[d] + n_j    over the keys j that i sees; n_j: a bias of the key
    L_i     = log sum_j exp S[i, j]
    P[i, j] = exp(S[i, j] - L_i)
    out_i   = sum_j P[i, j] (v_j + values[d])

With g the gradient of out, and D_i = g_i . out_i the mean of the weights' gradients:

    dS[i, j] = P[i, j] (g_i . (v_j + values[d]) - D_i)
    dq_i     = scale * sum_j dS[i, j] (k_j + keys[d])
    dk_j     = scale * sum_i dS[i, j] q_i                    dv_j       = sum_i P[i, j] g_i
    dkeys[d] = scale * sum_i dS[i, i - d] q_i                dvalues[d] = sum_i P[i, i - d] g_i
    dbias[d] = sum_i dS[i, i - d]                            dbias[K]   = sum of dS over all far pairs
    dn_j     = sum_i dS[i, j]

No sum has an order that may change: each program owns what it writes. `forward` and `query_gradients` own queries,
`key_gradients` keys, `table_gradients` a diagonal of tiles, whose pairs have the same distances in each of them.

What several kernels do:

- Scores and L are in powers of two: `scale` and n come multiplied by log2(e).
- The bias of near pairs is at hand as tiles, one for each diagonal of tiles, -inf where a query doesn't see the key, as
  in all of the first. The rows of a tile go on in those of the next, so that 2 TILE queries are read as one tile.
- A bias of keys counts from that of a token near the queries, so that near keys keep their digits.
- The largest bias that a query may see is subtracted, because beside a large number products lose their digits.
- Tiles of far pairs look nothing up: their bias is subtracted from L instead of added to the scores.
- `_of_pairs` and `_of_rows` go between a tile by query and key, (m, n), and its numbers by query and row of the tables,
  (m, ROWS). The rows are those of the tile's distances (SLIDING), of which there are m + n - 1, or the K near ones.
- A row of dS sums to 0, but for what is rounded in D, which is made of a rounded out. `query_gradients` finds it and
  gives the others the exact D, because sums of dS along a text would pile it up.
- The kernels that own keys or diagonals compute the transposed tile, (n, m), so that no product has to turn it over.

B batch, H heads, T tokens, Dh head dimension, m / n queries / keys of a tile, K near distances. out and the gradients
of q, k and v lie in memory as (B, T, H, Dh).
"""

import triton
import triton.language as tl

# Tiles that the window cuts, with far pairs alone; others with far pairs alone; those with near pairs.
_CUT = tl.constexpr(0)
_FAR = tl.constexpr(1)
_NEAR = tl.constexpr(2)
_NEAREST = tl.constexpr(128)  # queries, of the largest tile
_LOG2_E = tl.constexpr(1.4426950408889634)

# Steps that the kernels share


@triton.jit
def _load(pointer, row, stride, rows, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr):
    """Load some rows of a matrix (rows, Dh), each with BLOCK_D channels; zeros beyond the matrix."""
    channel = tl.arange(0, BLOCK_D)
    inside = (row[:, None] >= 0) & (row[:, None] < rows) & (channel[None, :] < HEAD_DIM)
    return tl.load(pointer + row[:, None] * stride + channel[None, :], mask=inside, other=0.0)


@triton.jit
def _store(pointer, row, stride, rows, x, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr):
    """Store x as some rows of a matrix (rows, Dh)."""
    channel = tl.arange(0, BLOCK_D)
    inside = (row[:, None] < rows) & (channel[None, :] < HEAD_DIM)
    tl.store(pointer + row[:, None] * stride + channel[None, :], x.to(pointer.dtype.element_ty), mask=inside)


@triton.jit
def _dot(a, b, PRECISION: tl.constexpr):
    """Multiply matrices, and sum in float32."""
    if PRECISION == "interpreted":  # where bfloat16 would be taken for whole numbers
        product = tl.dot(a.to(tl.float32), b.to(tl.float32))
    else:
        product = tl.dot(a, b, input_precision=PRECISION)
    return product


@triton.jit
def _of_pairs(by_row, distance, first_row, near, ROWS: tl.constexpr, AXIS: tl.constexpr):
    """Return what each pair has at its distance, (m, n) of by_row (m, ROWS); zero for far pairs. AXIS: of the rows."""
    row = tl.minimum(tl.maximum(distance - first_row, 0), ROWS - 1)
    return tl.where(distance < near, tl.gather(by_row, row, AXIS), 0.0)


@triton.jit
def _of_rows(tile, i, row, first_key, near, KEYS: tl.constexpr, AXIS: tl.constexpr):
    """Return what each query i has at each row, (m, ROWS) of tile (m, n); zero where no key of the tile is so far."""
    key = i - row - first_key
    inside = (key >= 0) & (key < KEYS) & (row >= 0) & (row < near)
    return tl.where(inside, tl.gather(tile, tl.minimum(tl.maximum(key, 0), KEYS - 1), AXIS), 0.0)


@triton.jit
def _bias_of_pairs(pointer, start, first_key, place_of_query, place_of_key, TILE: tl.constexpr):
    """Load the bias of each pair of a tile, whose places may be (m, 1) and (1, n) or the other way round."""
    row = (start // TILE - first_key // TILE + 1) * TILE + start % TILE + place_of_query
    return tl.load(pointer + row * TILE + first_key % TILE + place_of_key)


@triton.jit
def _bias_of_keys(pointer, j, start, length):
    """Load the bias of keys j, less that of a token near the queries from `start` on."""
    own = tl.load(pointer + start // _NEAREST * _NEAREST)
    own = tl.where(own == -float("inf"), 0.0, own)  # or a hidden key's number became none
    return (tl.load(pointer + j, mask=j < length, other=0.0) - own).to(tl.float32)


@triton.jit
def _hidden(scores, distance, window, HAS_WINDOW: tl.constexpr):
    """Set to -inf the scores of keys that a query doesn't see: later ones, and those before its window."""
    seen = distance >= 0
    if HAS_WINDOW:
        seen = seen & (distance < window)
    return tl.where(seen, scores, -float("inf"))


@triton.jit
def _key_ranges(start, near, window, length, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HAS_WINDOW: tl.constexpr):
    """Return where the tiles of each kind (_CUT, ...) begin and end among the keys of the queries from `start` on."""
    first = 0
    whole = 0
    if HAS_WINDOW:
        first = tl.maximum(start - window + 1, 0) // BLOCK_N * BLOCK_N
        whole = tl.cdiv(tl.maximum(start + BLOCK_M - window, 0), BLOCK_N) * BLOCK_N
    near_from = tl.minimum(tl.maximum(start - near + 1, 0), start) // BLOCK_N * BLOCK_N
    near_from = tl.maximum(near_from, first)
    whole = tl.minimum(whole, near_from)
    return (first, whole, near_from), (whole, near_from, tl.minimum(start + BLOCK_M, length))


# Output


@triton.jit
def forward(
    q_ptr,  # (B, H, T, Dh)
    k_ptr,  # (B, H / GROUP, T, Dh)
    v_ptr,
    bias_ptr,  # (H, K + 1)
    largest_ptr,  # (H, K + 1): the largest bias up to each distance
    bias_tiles_ptr,  # (H, diagonals, TILE, TILE)
    key_bias_ptr,  # (B or 1, H, T) in float64: n
    keys_ptr,  # ([H], K, Dh)
    values_ptr,
    out_ptr,
    log_sum_ptr,  # (B, H, T): L
    q_b, q_h, q_t, k_b, k_h, k_t, v_b, v_h, v_t, keys_h, values_h,  # strides
    bias_tiles_h, key_bias_b,
    length,
    near,
    window,
    scale,
    TILE: tl.constexpr,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    ROWS: tl.constexpr,
    SLIDING: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_KEY_BIAS: tl.constexpr,
    HAS_KEYS: tl.constexpr,
    HAS_VALUES: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    PRECISION: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Compute out and L of one tile of queries, by the online softmax of flash attention."""
    # The last queries of a text come first, because they see the most keys.
    blocks = tl.cdiv(length, BLOCK_M)
    start = (blocks - 1 - tl.program_id(0) % blocks) * BLOCK_M
    text_head = tl.program_id(0) // blocks
    b = (text_head // HEADS).to(tl.int64)
    h = text_head % HEADS
    k_ptr += b * k_b + h // GROUP * k_h
    v_ptr += b * v_b + h // GROUP * v_h
    keys_ptr += h * keys_h
    values_ptr += h * values_h
    bias_ptr += h * (near + 1)
    largest_ptr += h * (near + 1)
    bias_tiles_ptr += h * bias_tiles_h
    key_bias_ptr += b * key_bias_b + h * length

    query = tl.arange(0, BLOCK_M)
    key = tl.arange(0, BLOCK_N)
    i = start + query
    q = _load(q_ptr + b * q_b + h * q_h, i, q_t, length, HEAD_DIM, BLOCK_D)
    if HAS_BIAS:
        largest = tl.load(largest_ptr + tl.minimum(i, near))
        far_bias = (tl.load(bias_ptr + near) - tl.load(largest_ptr + near)) * _LOG2_E
    out = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)  # the sum of exp(S - most) v so far
    total = tl.zeros([BLOCK_M], tl.float32)  # the sum of exp(S - most) so far
    most = tl.full([BLOCK_M], -float("inf"), tl.float32)  # the largest S so far

    begin, end = _key_ranges(start, near, window, length, BLOCK_M, BLOCK_N, HAS_WINDOW)
    for kind in tl.static_range(_CUT if HAS_WINDOW else _FAR, _NEAR + 1):
        if kind == _NEAR and HAS_BIAS:
            most += far_bias  # without which far scores are
        for first_key in tl.range(begin[kind], end[kind], BLOCK_N, num_stages=1 if kind == _NEAR else STAGES):
            first_key = tl.multiple_of(first_key, BLOCK_N)
            j = first_key + key
            distance = i[:, None] - j[None, :]
            k = _load(k_ptr, j, k_t, length, HEAD_DIM, BLOCK_D)
            products = _dot(q, tl.trans(k), PRECISION)

            # Scores, and the largest of each query.
            if kind == _NEAR:
                first_row = start - first_key - BLOCK_N + 1 if SLIDING else 0
                row = first_row + tl.arange(0, ROWS)
                if HAS_KEYS:
                    keys = _load(keys_ptr, row, HEAD_DIM, near, HEAD_DIM, BLOCK_D)
                    by_row = _dot(q, tl.trans(keys), PRECISION)  # (m, ROWS)
                    products += _of_pairs(by_row, distance, first_row, near, ROWS, 1)
            scores = products * scale
            if HAS_KEY_BIAS:
                scores += _bias_of_keys(key_bias_ptr, j, start, length)[None, :]
            if kind == _NEAR and HAS_BIAS:
                bias = _bias_of_pairs(bias_tiles_ptr, start, first_key, query[:, None], key[None, :], TILE)
                scores += (bias - largest[:, None]) * _LOG2_E
            elif kind == _NEAR:
                scores = _hidden(scores, distance, window, HAS_WINDOW)
            elif kind == _CUT:
                scores = tl.where(distance < window, scores, -float("inf"))
            new_most = tl.maximum(most, tl.max(scores, 1))
            subtracted = tl.where(new_most == -float("inf"), 0.0, new_most)  # where nothing is seen yet
            weights = tl.exp2(scores - subtracted[:, None])

            # Sums so far shrink by as much as the largest score has grown.
            shrink = tl.exp2(most - subtracted)
            most = new_most
            total = total * shrink + tl.sum(weights, 1)
            v = _load(v_ptr, j, v_t, length, HEAD_DIM, BLOCK_D)
            out = out * shrink[:, None] + _dot(weights.to(v.dtype), v, PRECISION)
            if kind == _NEAR and HAS_VALUES:
                values = _load(values_ptr, row, HEAD_DIM, near, HEAD_DIM, BLOCK_D)
                by_row = _of_rows(weights, i[:, None], row[None, :], first_key, near, BLOCK_N, 1)  # (m, ROWS)
                out += _dot(by_row.to(values.dtype), values, PRECISION)

    # A query that sees nothing gets zeros.
    sees = total > 0.0
    out = out / tl.where(sees, total, 1.0)[:, None]
    log_sum = tl.where(sees, most + tl.log2(total), 0.0)
    _store(out_ptr + (b * length * HEADS + h) * HEAD_DIM, i, HEADS * HEAD_DIM, length, out, HEAD_DIM, BLOCK_D)
    tl.store(log_sum_ptr + text_head.to(tl.int64) * length + i, log_sum, mask=i < length)


# Gradients


@triton.jit
def query_gradients(
    q_ptr, k_ptr, v_ptr, bias_ptr, largest_ptr, bias_tiles_ptr, key_bias_ptr, keys_ptr, values_ptr,  # as in `forward`
    out_ptr, log_sum_ptr,
    grad_out_ptr,  # (B, H, T, Dh): g
    grad_q_ptr,
    mean_ptr,  # (B, H, T): D
    q_b, q_h, q_t, k_b, k_h, k_t, v_b, v_h, v_t, grad_out_b, grad_out_h, grad_out_t, keys_h, values_h,
    bias_tiles_h, key_bias_b,
    length,
    near,
    window,
    scale,
    grad_scale,  # scale, without log2(e)
    TILE: tl.constexpr,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    ROWS: tl.constexpr,
    SLIDING: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_KEY_BIAS: tl.constexpr,
    HAS_KEYS: tl.constexpr,
    HAS_VALUES: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    PRECISION: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Compute dq and D of one tile of queries."""
    blocks = tl.cdiv(length, BLOCK_M)
    block = blocks - 1 - tl.program_id(0) % blocks
    start = block * BLOCK_M
    text_head = tl.program_id(0) // blocks
    b = (text_head // HEADS).to(tl.int64)
    h = text_head % HEADS
    k_ptr += b * k_b + h // GROUP * k_h
    v_ptr += b * v_b + h // GROUP * v_h
    keys_ptr += h * keys_h
    values_ptr += h * values_h
    bias_ptr += h * (near + 1)
    largest_ptr += h * (near + 1)
    bias_tiles_ptr += h * bias_tiles_h
    key_bias_ptr += b * key_bias_b + h * length
    own_rows = (b * length * HEADS + h) * HEAD_DIM  # of tensors (B, T, H, Dh)
    own_numbers = text_head.to(tl.int64) * length  # of tensors (B, H, T)

    query = tl.arange(0, BLOCK_M)
    key = tl.arange(0, BLOCK_N)
    i = start + query
    q = _load(q_ptr + b * q_b + h * q_h, i, q_t, length, HEAD_DIM, BLOCK_D)
    grad_out = _load(grad_out_ptr + b * grad_out_b + h * grad_out_h, i, grad_out_t, length, HEAD_DIM, BLOCK_D)
    out = _load(out_ptr + own_rows, i, HEADS * HEAD_DIM, length, HEAD_DIM, BLOCK_D)
    mean = tl.sum(grad_out.to(tl.float32) * out.to(tl.float32), 1)  # D
    log_sum = tl.load(log_sum_ptr + own_numbers + i, mask=i < length, other=float("inf"))  # no weight beyond the text
    far_log_sum = log_sum
    if HAS_BIAS:
        largest = tl.load(largest_ptr + tl.minimum(i, near))
        far_log_sum = log_sum - (tl.load(bias_ptr + near) - tl.load(largest_ptr + near)) * _LOG2_E
    grad_q = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    rounded = tl.zeros([BLOCK_M], tl.float32)  # in D

    begin, end = _key_ranges(start, near, window, length, BLOCK_M, BLOCK_N, HAS_WINDOW)
    for kind in tl.static_range(_CUT if HAS_WINDOW else _FAR, _NEAR + 1):
        for first_key in tl.range(begin[kind], end[kind], BLOCK_N, num_stages=1 if kind == _NEAR else STAGES):
            first_key = tl.multiple_of(first_key, BLOCK_N)
            j = first_key + key
            distance = i[:, None] - j[None, :]
            k = _load(k_ptr, j, k_t, length, HEAD_DIM, BLOCK_D)
            v = _load(v_ptr, j, v_t, length, HEAD_DIM, BLOCK_D)
            products = _dot(q, tl.trans(k), PRECISION)
            grad_weights = _dot(grad_out, tl.trans(v), PRECISION)  # g_i . v_j

            # P, and what keys and values by distance add.
            if kind == _NEAR:
                first_row = start - first_key - BLOCK_N + 1 if SLIDING else 0
                row = first_row + tl.arange(0, ROWS)
                if HAS_KEYS:
                    keys = _load(keys_ptr, row, HEAD_DIM, near, HEAD_DIM, BLOCK_D)
                    by_row = _dot(q, tl.trans(keys), PRECISION)  # (m, ROWS)
                    products += _of_pairs(by_row, distance, first_row, near, ROWS, 1)
                if HAS_VALUES:
                    values = _load(values_ptr, row, HEAD_DIM, near, HEAD_DIM, BLOCK_D)
                    by_row = _dot(grad_out, tl.trans(values), PRECISION)
                    grad_weights += _of_pairs(by_row, distance, first_row, near, ROWS, 1)
            scores = products * scale
            if HAS_KEY_BIAS:
                scores += _bias_of_keys(key_bias_ptr, j, start, length)[None, :]
            if kind == _NEAR and HAS_BIAS:
                bias = _bias_of_pairs(bias_tiles_ptr, start, first_key, query[:, None], key[None, :], TILE)
                scores += (bias - largest[:, None]) * _LOG2_E
            elif kind == _NEAR:
                scores = _hidden(scores, distance, window, HAS_WINDOW)
            elif kind == _CUT:
                scores = tl.where(distance < window, scores, -float("inf"))
            weights = tl.exp2(scores - (log_sum if kind == _NEAR else far_log_sum)[:, None])

            # dS, and its sums.
            grad_scores = weights * (grad_weights - mean[:, None])
            rounded += tl.sum(grad_scores, 1)
            grad_q += _dot(grad_scores.to(k.dtype), k, PRECISION)
            if kind == _NEAR and HAS_KEYS:
                by_row = _of_rows(grad_scores, i[:, None], row[None, :], first_key, near, BLOCK_N, 1)
                grad_q += _dot(by_row.to(keys.dtype), keys, PRECISION)

    _store(grad_q_ptr + own_rows, i, HEADS * HEAD_DIM, length, grad_q * grad_scale, HEAD_DIM, BLOCK_D)
    tl.store(mean_ptr + own_numbers + i, mean + rounded, mask=i < length)


@triton.jit
def key_gradients(
    q_ptr, k_ptr, v_ptr, bias_ptr, largest_ptr, bias_tiles_ptr, key_bias_ptr, keys_ptr, values_ptr,
    log_sum_ptr, grad_out_ptr, mean_ptr,
    grad_k_ptr,
    grad_v_ptr,
    grad_far_ptr,  # (B, H, tiles of keys): sums of dS over far pairs
    grad_key_bias_ptr,  # (B, H, T): dn
    q_b, q_h, q_t, k_b, k_h, k_t, v_b, v_h, v_t, grad_out_b, grad_out_h, grad_out_t, keys_h, values_h,
    bias_tiles_h, key_bias_b,
    length,
    near,
    window,
    scale,
    grad_scale,
    TILE: tl.constexpr,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    ROWS: tl.constexpr,
    SLIDING: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_KEY_BIAS: tl.constexpr,
    HAS_KEYS: tl.constexpr,
    HAS_VALUES: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    PRECISION: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """Compute dk and dv of one tile of keys, over all queries of all heads that share them."""
    blocks = tl.cdiv(length, BLOCK_N)
    first_key = tl.program_id(0) % blocks * BLOCK_N
    text_head = tl.program_id(0) // blocks
    b = (text_head // (HEADS // GROUP)).to(tl.int64)
    shared = text_head % (HEADS // GROUP)  # the head of keys and values
    query = tl.arange(0, BLOCK_M)
    key = tl.arange(0, BLOCK_N)
    j = first_key + key
    k = _load(k_ptr + b * k_b + shared * k_h, j, k_t, length, HEAD_DIM, BLOCK_D)
    v = _load(v_ptr + b * v_b + shared * v_h, j, v_t, length, HEAD_DIM, BLOCK_D)
    grad_k = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)
    grad_v = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)

    # Where the tiles of each kind begin and end among the queries of these keys.
    last = length
    cut_from = length
    if HAS_WINDOW:
        last = tl.minimum(length, first_key + BLOCK_N - 1 + window)
        cut_from = tl.minimum((first_key + window) // BLOCK_M * BLOCK_M, last)
    far_from = tl.minimum(tl.cdiv(first_key + BLOCK_N - 1 + near, BLOCK_M) * BLOCK_M, last)
    cut_from = tl.maximum(cut_from, far_from)
    begin = (cut_from, far_from, first_key // BLOCK_M * BLOCK_M)
    end = (last, cut_from, far_from)

    for member in range(GROUP):
        h = shared * GROUP + member
        own_numbers = (b * HEADS + h) * length
        own_q = q_ptr + b * q_b + h * q_h
        own_grad_out = grad_out_ptr + b * grad_out_b + h * grad_out_h
        own_bias = bias_ptr + h * (near + 1)
        own_largest = largest_ptr + h * (near + 1)
        own_tiles = bias_tiles_ptr + h * bias_tiles_h
        own_key_bias = key_bias_ptr + b * key_bias_b + h * length
        if HAS_BIAS:
            far_bias = (tl.load(own_bias + near) - tl.load(own_largest + near)) * _LOG2_E
        grad_far = tl.zeros([BLOCK_N], tl.float32)
        grad_key_bias = tl.zeros([BLOCK_N], tl.float32)
        for kind in tl.static_range(_CUT if HAS_WINDOW else _FAR, _NEAR + 1):
            for start in tl.range(begin[kind], end[kind], BLOCK_M, num_stages=1 if kind == _NEAR else STAGES):
                start = tl.multiple_of(start, BLOCK_M)
                i = start + query
                distance = i[None, :] - j[:, None]  # (n, m)
                q = _load(own_q, i, q_t, length, HEAD_DIM, BLOCK_D)
                grad_out = _load(own_grad_out, i, grad_out_t, length, HEAD_DIM, BLOCK_D)
                log_sum = tl.load(log_sum_ptr + own_numbers + i, mask=i < length, other=float("inf"))
                mean = tl.load(mean_ptr + own_numbers + i, mask=i < length, other=0.0)
                products = _dot(k, tl.trans(q), PRECISION)
                grad_weights = _dot(v, tl.trans(grad_out), PRECISION)

                # P, and what keys and values by distance add.
                if kind == _NEAR:
                    first_row = start - first_key - BLOCK_N + 1 if SLIDING else 0
                    row = first_row + tl.arange(0, ROWS)
                    if HAS_KEYS:
                        keys = _load(keys_ptr + h * keys_h, row, HEAD_DIM, near, HEAD_DIM, BLOCK_D)
                        by_row = _dot(keys, tl.trans(q), PRECISION)  # (ROWS, m)
                        products += _of_pairs(by_row, distance, first_row, near, ROWS, 0)
                    if HAS_VALUES:
                        values = _load(values_ptr + h * values_h, row, HEAD_DIM, near, HEAD_DIM, BLOCK_D)
                        by_row = _dot(values, tl.trans(grad_out), PRECISION)
                        grad_weights += _of_pairs(by_row, distance, first_row, near, ROWS, 0)
                scores = products * scale
                if HAS_KEY_BIAS:
                    scores += _bias_of_keys(own_key_bias, j, start, length)[:, None]
                if kind == _NEAR and HAS_BIAS:
                    bias = _bias_of_pairs(own_tiles, start, first_key, query[None, :], key[:, None], TILE)
                    largest = tl.load(own_largest + tl.minimum(i, near))
                    scores += (bias - largest[None, :]) * _LOG2_E
                elif kind == _NEAR:
                    scores = _hidden(scores, distance, window, HAS_WINDOW)
                elif kind == _CUT:
                    scores = tl.where(distance < window, scores, -float("inf"))
                if kind != _NEAR and HAS_BIAS:
                    log_sum -= far_bias
                weights = tl.exp2(scores - log_sum[None, :])

                # dS, and the sums over queries.
                grad_v += _dot(weights.to(grad_out.dtype), grad_out, PRECISION)
                grad_scores = weights * (grad_weights - mean[None, :])
                grad_k += _dot(grad_scores.to(q.dtype), q, PRECISION)
                if HAS_KEY_BIAS:
                    grad_key_bias += tl.sum(grad_scores, 1)
                if HAS_BIAS:
                    of_far = grad_scores
                    if kind == _NEAR:
                        of_far = tl.where(distance >= near, grad_scores, 0.0)
                    grad_far += tl.sum(of_far, 1)
        if HAS_BIAS:
            tl.store(grad_far_ptr + (b * HEADS + h) * blocks + first_key // BLOCK_N, tl.sum(grad_far, 0))
        if HAS_KEY_BIAS:
            tl.store(grad_key_bias_ptr + own_numbers + j, grad_key_bias, mask=j < length)

    tokens = HEADS // GROUP * HEAD_DIM  # numbers of a token in (B, T, H, Dh)
    own_rows = b * length * tokens + shared * HEAD_DIM
    _store(grad_k_ptr + own_rows, j, tokens, length, grad_k * grad_scale, HEAD_DIM, BLOCK_D)
    _store(grad_v_ptr + own_rows, j, tokens, length, grad_v, HEAD_DIM, BLOCK_D)


@triton.jit
def table_gradients(
    q_ptr, k_ptr, v_ptr, bias_ptr, largest_ptr, bias_tiles_ptr, key_bias_ptr, keys_ptr, values_ptr,
    log_sum_ptr, grad_out_ptr, mean_ptr,
    grad_bias_ptr,  # (B, H, diagonals, splits, BLOCK, BLOCK): sums of some tiles of a diagonal, place by place
    grad_keys_ptr,  # (B, H, diagonals, splits, ROWS, Dh)
    grad_values_ptr,
    q_b, q_h, q_t, k_b, k_h, k_t, v_b, v_h, v_t, grad_out_b, grad_out_h, grad_out_t, keys_h, values_h,
    bias_tiles_h, key_bias_b,
    length,
    near,
    window,
    scale,
    grad_scale,
    diagonals,
    splits,
    TILE: tl.constexpr,
    HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK: tl.constexpr,  # queries, and keys, of a tile
    ROWS: tl.constexpr,
    SLIDING: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    HAS_KEY_BIAS: tl.constexpr,
    HAS_KEYS: tl.constexpr,
    HAS_VALUES: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Sum dbias, dkeys and dvalues over every `splits`-th tile of one diagonal of tiles.

    A tile on diagonal c has the queries a BLOCK, ... and the keys (a - c) BLOCK, ...: of all its tiles the pair in one
    place has one distance, so that dS is summed place by place.
    """
    # Diagonals near the queries first, because they are the longest.
    program = tl.program_id(0)
    split = program % splits
    c = program // splits % diagonals
    text_head = program // (splits * diagonals)
    b = (text_head // HEADS).to(tl.int64)
    h = text_head % HEADS
    q_ptr += b * q_b + h * q_h
    k_ptr += b * k_b + h // GROUP * k_h
    v_ptr += b * v_b + h // GROUP * v_h
    grad_out_ptr += b * grad_out_b + h * grad_out_h
    own_numbers = text_head.to(tl.int64) * length
    bias_ptr += h * (near + 1)
    largest_ptr += h * (near + 1)
    bias_tiles_ptr += h * bias_tiles_h
    key_bias_ptr += b * key_bias_b + h * length

    # Rows of the tables that the diagonal's pairs have.
    first_row = (c - 1) * BLOCK + 1 if SLIDING else 0
    row = first_row + tl.arange(0, ROWS)
    place = tl.arange(0, BLOCK)
    distance = c * BLOCK + place[None, :] - place[:, None]  # (n, m)
    if HAS_KEYS:
        keys = _load(keys_ptr + h * keys_h, row, HEAD_DIM, near, HEAD_DIM, BLOCK_D)
        grad_keys = tl.zeros([ROWS, BLOCK_D], tl.float32)
    if HAS_VALUES:
        values = _load(values_ptr + h * values_h, row, HEAD_DIM, near, HEAD_DIM, BLOCK_D)
        grad_values = tl.zeros([ROWS, BLOCK_D], tl.float32)
    if HAS_BIAS:
        bias = _bias_of_pairs(bias_tiles_ptr, c * BLOCK, 0, place[None, :], place[:, None], TILE)
        grad_bias = tl.zeros([BLOCK, BLOCK], tl.float32)

    for start in range((c + split) * BLOCK, length, splits * BLOCK):
        first_key = start - c * BLOCK
        i = start + place
        j = first_key + place
        q = _load(q_ptr, i, q_t, length, HEAD_DIM, BLOCK_D)
        k = _load(k_ptr, j, k_t, length, HEAD_DIM, BLOCK_D)
        v = _load(v_ptr, j, v_t, length, HEAD_DIM, BLOCK_D)
        grad_out = _load(grad_out_ptr, i, grad_out_t, length, HEAD_DIM, BLOCK_D)
        log_sum = tl.load(log_sum_ptr + own_numbers + i, mask=i < length, other=float("inf"))
        mean = tl.load(mean_ptr + own_numbers + i, mask=i < length, other=0.0)

        # P and dS, as in `key_gradients`.
        products = _dot(k, tl.trans(q), PRECISION)
        grad_weights = _dot(v, tl.trans(grad_out), PRECISION)
        if HAS_KEYS:
            by_row = _dot(keys, tl.trans(q), PRECISION)  # (ROWS, m)
            products += _of_pairs(by_row, distance, first_row, near, ROWS, 0)
        if HAS_VALUES:
            by_row = _dot(values, tl.trans(grad_out), PRECISION)
            grad_weights += _of_pairs(by_row, distance, first_row, near, ROWS, 0)
        scores = products * scale
        if HAS_KEY_BIAS:
            scores += _bias_of_keys(key_bias_ptr, j, start, length)[:, None]
        if HAS_BIAS:
            largest = tl.load(largest_ptr + tl.minimum(i, near))
            scores += (bias - largest[None, :]) * _LOG2_E
        else:
            scores = _hidden(scores, distance, window, HAS_WINDOW)
        weights = tl.exp2(scores - log_sum[None, :])
        grad_scores = weights * (grad_weights - mean[None, :])

        if HAS_BIAS:
            grad_bias += grad_scores
        if HAS_KEYS:
            by_row = _of_rows(grad_scores, i[None, :], row[:, None], first_key, near, BLOCK, 0)  # (ROWS, m)
            grad_keys += _dot(by_row.to(q.dtype), q, PRECISION)
        if HAS_VALUES:
            by_row = _of_rows(weights, i[None, :], row[:, None], first_key, near, BLOCK, 0)
            grad_values += _dot(by_row.to(grad_out.dtype), grad_out, PRECISION)

    own_sums = program.to(tl.int64) * ROWS
    place_of_row = tl.arange(0, ROWS)
    if HAS_BIAS:
        own_bias = grad_bias_ptr + program.to(tl.int64) * BLOCK * BLOCK
        tl.store(own_bias + place[None, :] * BLOCK + place[:, None], grad_bias)
    if HAS_KEYS:
        own_keys = grad_keys_ptr + own_sums * HEAD_DIM
        _store(own_keys, place_of_row, HEAD_DIM, ROWS, grad_keys * grad_scale, HEAD_DIM, BLOCK_D)
    if HAS_VALUES:
        _store(grad_values_ptr + own_sums * HEAD_DIM, place_of_row, HEAD_DIM, ROWS, grad_values, HEAD_DIM, BLOCK_D)
