"""Faster computations of what `poslab.attention.reference` computes. None need be read to know the result.

A block of four queries with a table for distances 0 .. 3 (lowest 0, highest 3), under a causal mask:

                     keys 0 .. 9
                   +---------------------+
        query 6    | f f f f n n n . . . |    n  near: distances below `highest`, each with a row of its own, a near row
        query 7    | f f f f f n n n . . |    f  far: distances from `highest` on, which share the far row
        query 8    | f f f f f f n n n . |    .  hidden from the query
        query 9    | f f f f f f f n n n |
                   +---------------------+    all n together: the band, whose diagonals have one distance each

    block     neighbouring queries, 128 as a rule, and the keys that any of them sees                   ../blocks.py
    tile      the scores of one block, all that exists of the matrix of scores at any time            band_tile.py

near_tables.py describes how tables by distance reach a tile. Without near tables nothing is added to far scores.

    blockwise.py   tables by distance, a bias of keys, dropout; scores.py: the scores of its tiles
    flash.py       a bias by distance that needs no gradient, or none, by torch's flash kernel; null scores
    pairwise.py    what goes by pairs of tokens: the hook `score_mod`, positions that aren't consecutive
    decode.py      one query over a cache
    products.py    products in bfloat16
    sdpa.py        anywhere attention without position; on CUDA also a bias by distance, as the mask of torch's kernels
    banded.py      on CUDA keys and values of few distances, by torch's flash kernel and a band of near keys
    flex.py        on CUDA tables of keys and queries, a bias of keys, long texts, by torch's flex_attention
    columns.py     a bias linear in the distance, a bias of keys, as further channels of torch's flash kernel
    near_far.py    on CUDA all tables but those of queries, a bias of keys, windows, by poslab's own kernels in Triton

Each file begins with what it gains. A kernel stays while that is 1.15 times or more at some length of 256 to 2,048. The
last two have not been timed on a GPU, so `auto` doesn't choose them.
"""
