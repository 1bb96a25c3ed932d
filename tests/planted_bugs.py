"""Bugs, each with the tests that must notice it: proof that a shorter test suite guards what a longer one guarded.

They are planted one by one in a copy of the repository, and the tests named beside each are run there.

    python tests/planted_bugs.py                 all, in three to seven minutes
    python tests/planted_bugs.py fsync top-p     those with one of these words in their name
    python tests/planted_bugs.py --list          names only

Exit code 1 where a bug survives, where it can't be planted because its line has changed, or where the named tests fail
without any bug.
"""

import argparse
import importlib
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import hypothesis
import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
LIBRARIES = ("torch", "pytorch_lightning", "hydra", "tensorboard", "tiktoken", "scipy.stats", "matplotlib.figure")
TIME_LIMIT = 300  # seconds for a test


@dataclass(frozen=True)
class Bug:
    """`before` stands exactly once in src/poslab/<file>; `tests` are ids in tests/, with spaces between them."""

    name: str
    file: str
    before: str
    after: str
    tests: str

    @property
    def paths(self) -> list[str]:
        return [f"tests/{test}" for test in self.tests.split()]


BUGS = [
    # Positions
    Bug(
        "t5-bucket-off-by-one", "positions/t5.py",
        "* (side - max_exact)).to(torch.int64)", "* (side - max_exact - 1)).to(torch.int64)",
        "test_t5.py::test_reference_tables",
    ),
    Bug(
        "t5-sign", "positions/t5.py",
        "key_minus_query = -torch.arange", "key_minus_query = torch.arange",
        "test_t5.py::test_bias_shape_and_orientation",
    ),
    Bug(
        "t5-scale-ignored", "positions/t5.py",
        ".T * self.scale", ".T",
        "test_t5.py::test_last_query_stands_at_the_last_key",
    ),
    Bug(
        "distance-off-by-one", "positions/terms.py",
        "torch.arange(offset, offset + query_length", "torch.arange(offset + 1, offset + query_length + 1",
        "test_attention.py::test_equals_loops_in_outputs_and_gradients",
    ),
    Bug(
        "alibi-slopes-between", "positions/alibi.py",
        "finer[::2]", "finer[1::2]",
        "test_formulas.py::test_attention_is_the_formula[counting-causal-alibi]",
    ),
    Bug(
        "alibi-rises-to-the-future", "positions/alibi.py",
        "distances.stop).abs()", "distances.stop)",
        "test_formulas.py::test_attention_is_the_formula[counting-bidirectional-alibi]",
    ),
    Bug(
        "kerple-exponent-up-to-1", "positions/kerple.py",
        "(2 * r2.sigmoid())", "r2.sigmoid()",
        "test_distance.py::test_kerple_is_the_kernel_of_the_paper",
    ),
    Bug(
        "sandwich-stretched", "positions/sandwich.py",
        "bias=product / compression", "bias=product * compression",
        "test_formulas.py::test_attention_is_the_formula[given-causal-sandwich]",
    ),
    Bug(
        "music-of-the-first-layer", "positions/music.py",
        'keys = tables["keys"][layer]  # (H, R, Dh)', 'keys = tables["keys"][0]  # (H, R, Dh)',
        "test_formulas.py::test_attention_is_the_formula[counting-causal-music]",
    ),
    Bug(
        "transformer-xl-u-meets-distances", "positions/transformer_xl.py",
        'tables["v"][layer] - tables["u"][layer]', 'tables["v"][layer]',
        "test_distance.py::test_transformer_xl_equals_xlnet",
    ),
    Bug(
        "transformer-xl-cosines-first", "positions/transformer_xl.py",
        "[angle.sin(), angle.cos()]", "[angle.cos(), angle.sin()]",
        "test_formulas.py::test_attention_is_the_formula[counting-bidirectional-transformer_xl]",
    ),
    Bug(
        "deberta-distance-seen-from-the-key", "positions/deberta.py",
        'tables["position_queries"][layer] * 3**-0.5', 'tables["position_queries"][layer].flip(-2) * 3**-0.5',
        "test_deberta.py::test_equals_transformers",
    ),
    Bug(
        "deberta-two-products-scaled", "positions/deberta.py",
        'tables["position_queries"][layer] * 3**-0.5', 'tables["position_queries"][layer]',
        "test_formulas.py::test_attention_is_the_formula[counting-causal-deberta]",
    ),
    Bug(
        "absolute-table-offset", "positions/absolute.py",
        'embedding(positions, tables["position"])', 'embedding(positions, tables["position"].roll(1, 0))',
        "test_absolute.py::test_the_model_uses_row_t_at_position_t",
    ),
    Bug(
        "absolute-position-of-a-chunk", "positions/absolute.py",
        'embedding(positions, tables["position"])', 'embedding(positions - positions[..., :1], tables["position"])',
        "test_cache.py::test_cached_logits_are_those_of_the_full_pass",
    ),
    Bug(
        "absolute-last-start-never-drawn", "positions/absolute.py",
        "- length + 1, ()", "- length, ()",
        "test_absolute.py::test_every_start_is_drawn_and_every_position_learned",
    ),
    Bug(
        "sinusoidal-cosines-first", "positions/sinusoidal.py",
        "[angle.sin(), angle.cos()]", "[angle.cos(), angle.sin()]",
        "test_sinusoidal.py::test_the_papers_formula",
    ),
    Bug(
        "rotation-stretches", "positions/rotary.py",
        "addcmul_(b, sin, value=-1)", "addcmul_(b, sin)",
        "test_rope.py::test_a_pair_turns_by_its_angle",
    ),
    Bug(
        "gradient-turned-on", "positions/rotary.py",
        "_Turn.apply(gradient, cos, -sin", "_Turn.apply(gradient, cos, sin",
        "test_rope.py::test_gradients",
    ),
    Bug(
        "angles-in-half-precision", "positions/rotary.py",
        "dtype = torch.promote_types(like.dtype, torch.float32)", "dtype = like.dtype",
        "test_rope.py::test_half_precision_only_rounds_the_result",
    ),
    Bug(
        "angles-of-other-positions", "positions/rotary.py",
        "if version != positions._version:", "if version is None:",
        "test_rope.py::test_positions_changed_in_place_are_noticed",
    ),
    Bug(
        "angles-in-every-layer", "positions/rotary.py",
        "_computed[positions] = (positions._version, results)", "pass",
        "test_rope.py::test_angles_are_computed_once_per_pass",
    ),
    Bug(
        "yarn-ramp-begins-late", "positions/rope.py",
        "math.floor(first)", "math.ceil(first)",
        "test_rope.py::test_llama_of_transformers",
    ),
    Bug(
        "first-layer-without-positions", "positions/rope_nope.py",
        "(layer + 1) % self.every", "layer % self.every",
        "test_rope.py::test_a_window_in_the_other_layers",
    ),
    Bug(
        "xpos-centred-on-what-is-read", "positions/xpos.py",
        "positions - CENTRE * self.scale_base", "positions - positions[-1] // 2",
        "test_cache.py::test_cached_logits_are_those_of_the_full_pass",
    ),
    Bug(
        "tables-of-layers-above-0-never-used", "positions/shaw.py",
        "else table[layer] for", "else table[0] for",
        "test_schemes.py::test_every_parameter_has_the_right_gradient",
    ),
    Bug(
        "xavier-of-the-stack", "positions/shaw.py",
        "(6 / (shape[-2] + shape[-1]))", "(6 / (shape[0] + shape[-1]))",
        "test_shaw.py::test_xavier_for_each_table",
    ),
    Bug(
        "rows-of-a-batch-mixed", "positions/absolute.py",
        "return x + torch.nn", "return x + x.mean(0) + torch.nn",
        "test_schemes.py::test_rows_of_a_batch_do_not_mix",
    ),
    Bug(
        "tables-set-the-seed", "positions/shaw.py",
        "    bound = (6 /", "    torch.manual_seed(0)\n    bound = (6 /",
        "test_schemes.py::test_tables_are_drawn_from_torch_s_generator_and_leave_its_seed_alone",
    ),
    Bug(
        "tensor-made-on-the-cpu", "positions/t5.py",
        ".T * self.scale", ".T * torch.tensor([self.scale])",
        "test_schemes.py::test_every_tensor_is_made_on_the_models_device",
    ),
    # Attention
    Bug(
        "bias-scaled", "attention/reference.py",
        "_less_largest(terms.bias_of(", "_less_largest(problem.scale * terms.bias_of(",
        "test_attention.py::test_equals_loops_in_outputs_and_gradients",
    ),
    Bug(
        "causal-mask-off-by-one", "attention/problem.py",
        ".tril(self.offset)", ".tril(self.offset + 1)",
        "test_schemes.py::test_causal",
    ),
    Bug(
        "window-of-attention-off-by-one", "attention/problem.py",
        "seen.triu(self.offset - self.window + 1)", "seen.triu(self.offset - self.window)",
        "test_cache.py::test_attend_hides_by_window_and_first_key",
    ),
    Bug(
        "scale-of-attention-ignored", "attention/dispatch.py",
        "mask, dropout_p, is_causal, scale=scale)", "mask, dropout_p, is_causal)",
        "test_attention.py::test_equals_loops_in_outputs_and_gradients",
    ),
    Bug(
        "causal-mask-of-the-kernel-off-by-one", "attention/tile.py",
        "1 if causal else window", "2 if causal else window",
        "test_kernels.py::test_blockwise_equals_reference",
    ),
    Bug(
        "far-row-missing", "attention/relative.py",
        "(table[..., near, :] - table[..., -1:, :]).flip(-2)", "table[..., near, :].flip(-2)",
        "test_kernels.py::test_blockwise_equals_reference",
    ),
    Bug(
        "far-bias-forgotten", "attention/relative.py",
        '"far_bias": bias', '"far_bias": 0 * bias',
        "test_kernels.py::test_blockwise_equals_reference",
    ),
    Bug(
        "far-row-of-values-forgotten", "attention/relative.py",
        "return v + terms.values[..., -1:, :].to(v.dtype)", "return v",
        "test_kernels.py::test_blockwise_equals_reference",
    ),
    Bug(
        "log-sum-exp-of-another-base", "attention/blockwise.py",
        "torch.add(largest, total.log2(),", "torch.add(largest, total.log(),",
        "test_kernels.py::test_blockwise_equals_reference",
    ),
    Bug(
        "window-of-the-kernel-off-by-one", "attention/tile.py",
        "first = block.position - window + 1 ", "first = block.position - window ",
        "test_kernels.py::test_blockwise_equals_reference",
    ),
    Bug(
        "far-row-of-queries-forgotten", "attention/scores.py",
        "self.queries = q if near.far_query is None else q + near.far_query", "self.queries = q",
        "test_kernels.py::test_blockwise_equals_reference",
    ),
    Bug(
        "first-near-rows-of-queries-for-all", "attention/tile.py",
        "first = self._first + start", "first = self._first",
        "test_kernels.py::test_blockwise_equals_reference",
    ),
    Bug(
        "gradient-of-a-key-s-bias-from-one-block", "attention/blockwise.py",
        "grad_key_bias[:, block.columns] += grad", "grad_key_bias[:, block.columns] = grad",
        "test_kernels.py::test_blockwise_equals_reference",
    ),
    Bug(
        "bias-of-keys-rounded-too-early", "attention/relative.py",
        "bias = bias.expand(*k.shape[:3])", "bias = bias.to(q.dtype).expand(*k.shape[:3])",
        "test_kernels.py::test_what_sums_up_along_a_text_takes_no_digits",
    ),
    Bug(
        "other-dropout-in-backward", "attention/dropout.py",
        ".manual_seed(self.seed + block.number)", ".manual_seed(int(torch.randint(2**62, ())))",
        "test_kernels.py::test_dropout_is_the_same_from_every_thread",
    ),
    Bug(
        "same-dropout-in-every-block", "attention/dropout.py",
        ".manual_seed(self.seed + block.number)", ".manual_seed(self.seed)",
        "test_kernels.py::test_blocks_are_dropped_independently",
    ),
    Bug(
        "gradient-of-bias-of-the-last-block-only", "attention/blockwise.py",
        "grad_bias[:, tile.rows] += by_row.sum(1)", "grad_bias[:, tile.rows] = by_row.sum(1)",
        "test_kernels.py::test_blockwise_equals_reference",
    ),
    Bug(
        "flash-numbers-of-another-block", "attention/flash.py",
        "self.position - block.position", "max(0, self.position - block.position - 1)",
        "test_kernels.py::test_flash_with_numbers_by_distance_equals_reference",
    ),
    Bug(
        "flash-raises-what-matters", "attention/flash.py",
        "2 * math.log(torch.finfo(numbers.dtype).eps)", "0.1 * math.log(torch.finfo(numbers.dtype).eps)",
        "test_kernels.py::test_flash_with_numbers_by_distance_equals_reference",
    ),
    Bug(
        "parts-of-a-block-joined-the-wrong-way", "attention/flash_by_key.py",
        "(of_own - of_before).sigmoid()", "(of_before - of_own).sigmoid()",
        "test_kernels.py::test_flash_with_numbers_by_key_equals_reference",
    ),
    Bug(
        "gradient-of-a-key-s-bias-scaled", "attention/flash_by_key.py",
        "grad_k[0, ..., -1] / ctx.scale", "grad_k[0, ..., -1]",
        "test_kernels.py::test_flash_with_numbers_by_key_equals_reference",
    ),
    Bug(
        "keys-with-weight-left-out", "attention/relative.py",
        "bound = rising[:, own] + (nothing - 2 * largest_score)", "bound = rising[:, own] - 1",
        "test_kernels.py::test_flash_with_numbers_by_key_equals_reference",
    ),
    Bug(
        "gradient-of-bias-dropped-in-the-band", "attention/banded.py",
        "grad_bias += by_distance.sum((1, 2))", "grad_bias += 0",
        "test_kernels.py::test_banded_equals_reference",
    ),
    Bug(
        "wrong-beyond-two-blocks-only", "attention/blocks.py",
        "offset + first - begin)", "offset + first - begin - (number > 1))",
        "test_schemes.py::test_kernels_compute_it_in_float32",
    ),
    Bug(
        "band-off-by-one", "attention/banded.py",
        "(key >= query + self.near)", "(key > query + self.near)",
        "test_kernels.py::test_banded_equals_reference",
    ),
    Bug(
        "bias-less-the-far-row", "attention/relative.py",
        "return far.where((largest - far).abs() < NEAR_BY, largest)",
        "return far.expand(-1, query_length)",
        "test_kernels.py::test_kernels_equal_the_reference_for_any_bias",
    ),
    Bug(
        "gradient-of-the-far-bias-forgotten", "attention/blockwise.py",
        "grad_far_bias -= by_row", "grad_far_bias -= 0 * by_row",
        "test_kernels.py::test_blockwise_equals_reference",
    ),
    Bug(
        "far-bias-forgotten-in-the-band", "attention/banded.py",
        "return near.far_bias[:, None] - near.largest_bias[:, near.count :]",
        "return -near.largest_bias[:, near.count :]",
        "test_kernels.py::test_banded_equals_reference",
    ),
    Bug(
        "backend-of-layer-0-for-all", "training/summary.py",
        "in model.relative_terms(length)}", "in model.relative_terms(length)[:1]}",
        "test_model.py::test_every_layer_is_asked_for_its_backend",
    ),
    # Cache and generation
    Bug(
        "position-0-for-a-cached-query", "cache.py",
        "self._counted(self.length, self.length + count, device)", "self._counted(0, count, device)",
        "test_cache.py::test_cached_logits_are_those_of_the_full_pass",
    ),
    Bug(
        "newest-query-at-the-first-key", "cache.py",
        "offset=keys.shape[-2] - count", "offset=0",
        "test_cache.py::test_cached_logits_are_those_of_the_full_pass",
    ),
    Bug(
        "window-of-the-cache-off-by-one", "cache.py",
        "max(0, self.length + 1 - self.window)", "max(0, self.length + 2 - self.window)",
        "test_cache.py::test_a_window_hides_what_is_older",
    ),
    Bug(
        "padding-counted-as-positions", "cache.py",
        "(positions - self._padding.to(device)[:, None]).clamp(min=0)", "positions.expand(len(self._padding), -1)",
        "test_cache.py::test_rows_of_unequal_length_are_each_their_own_text",
    ),
    Bug(
        "padding-seen-in-a-window", "cache.py",
        "return (first - self.first_seen).clamp(min=0)", "return None",
        "test_cache.py::test_rows_of_unequal_length_are_each_their_own_text",
    ),
    Bug(
        "top-p-off-by-one", "generate.py",
        "likelier >= self.top_p", "below >= self.top_p",
        "test_generate.py::test_frequencies_are_the_probabilities",
    ),
    Bug(
        "seed-of-generation-ignored", "generate.py",
        "return torch.Generator().manual_seed(seed)\n", "return None\n",
        "test_generate.py::test_a_row_alone_writes_what_it_writes_in_a_batch",
    ),
    Bug(
        "all-rows-draw-alike", "generate.py",
        "manual_seed(seed) for seed in seeds]", "manual_seed(seeds[0]) for seed in seeds]",
        "test_generate.py::test_samples_of_one_prompt_differ",
    ),
    # Memory
    Bug(
        "retrieval-finds-its-own-segment", "memory/retrieval.py",
        "values, found = lookup.values, self.find(q, lookup, layer, first)",
        "lookup.add(k, v)\n        values, found = lookup.values, self.find(q, lookup, layer, first)",
        "test_retrieval.py",
    ),
    Bug(
        "retrieved-distances-one-too-short", "memory/retrieval.py",
        "terms.rows_of(queries + count - found)", "terms.rows_of(queries + count - found - 1)",
        "test_retrieval.py",
    ),
    Bug(
        "gate-the-wrong-way-round", "memory/retrieval.py",
        "return self.gate.sigmoid()", "return (-self.gate).sigmoid()",
        "test_retrieval.py",
    ),
    Bug(
        "other-documents-are-found", "memory/retrieval.py",
        "first, best = keys.shape[-2] - count, min(k, count)", "first, best = 0, min(k, count)",
        "test_retrieval.py",
    ),
    Bug(
        "memory-keeps-its-graph", "memory/segments.py",
        "[:, -self._length :].detach()", "[:, -self._length :]",
        "test_memory.py::test_segments_are_the_formula[t5]",
    ),
    Bug(
        "oldest-tokens-remembered", "memory/segments.py",
        "self._shown[:, :, dropped:]", "self._shown[:, :, : self.remembered - dropped]",
        "test_memory.py::test_segments_are_the_formula[t5]",
    ),
    Bug(
        "memory-of-another-document", "memory/segments.py",
        "first_key = None if least >= self.remembered", "first_key = None if least >= 0",
        "test_memory.py::test_segments_are_the_formula[nope]",
    ),
    Bug(
        "segments-all-begin-at-0", "memory/segments.py",
        "positions + (self._read - self.remembered)", "positions",
        "test_memory.py::test_cached_reading_is_that_of_segments[sinusoidal]",
    ),
    Bug(
        "rows-begin-at-one-place", "memory/segments.py",
        "(self._memory.read - self.remembered)[:, None]", "(self._memory.read.max() - self.remembered)",
        "test_memory.py::test_segments_are_the_formula[sinusoidal]",
    ),
    Bug(
        "queries-at-the-first-key-of-memory", "attention/scheme.py",
        "= k.shape[-2] - q.shape[-2] + first", "= first",
        "test_memory.py::test_segments_are_the_formula[nope]",
    ),
    Bug(
        "queries-placed-as-memory", "model.py",
        "keys.last(tokens.shape[1])", "Places(keys.positions[..., : tokens.shape[1]])",
        "test_memory.py::test_segments_are_the_formula[rope]",
    ),
    Bug(
        "marks-of-the-segment-only", "layers/block.py",
        "torch.cat([inputs, x], dim=1) if", "torch.cat([0 * inputs, x], dim=1) if",
        "test_memory.py::test_segments_are_the_formula[forgetting]",
    ),
    Bug(
        "asked-in-the-order-of-segments", "model.py",
        "[segments.argsort(stable=True).argsort()]", "[segments.argsort(stable=True)]",
        "test_memory.py::test_only_what_is_asked_is_computed_and_nothing_else_changes",
    ),
    Bug(
        "joined-behind-zeros", "memory/state.py",
        "(0, 0, most - tensor.shape[-2], 0)", "(0, 0, 0, most - tensor.shape[-2])",
        "test_memory.py::test_rows_that_remember_less_are_joined_and_see_no_more",
    ),
    Bug(
        "one-segmentation-for-all-rows-of-a-cache", "cache.py",
        "padding + (self.length - padding) // self.segment", "self.length // self.segment",
        "test_memory.py::test_cached_reading_is_that_of_segments[t5]",
    ),
    Bug(
        "chunk-read-beyond-its-segment", "cache.py",
        "begin + self.segment, end, self.segment", "begin + self.segment, end, 2 * self.segment",
        "test_memory.py::test_cached_reading_is_that_of_segments[t5]",
    ),
    # Model
    Bug(
        "head-not-tied", "model.py",
        "return F.linear(self.hidden(tokens, cache, positions), self.token_embedding.weight)",
        "return F.linear(self.hidden(tokens, cache, positions), self.token_embedding.weight.detach())",
        "test_schemes.py::test_every_parameter_has_the_right_gradient",
    ),
    # Positions, marks and functions of a tile
    Bug(
        "relative-terms-by-places-where-positions-jump", "attention/problem.py",
        "self.pairwise is not None and self.pairwise.irregular", "False",
        "test_positions.py::test_relative_terms_go_by_them",
    ),
    Bug(
        "positions-drawn-in-evaluation", "model.py",
        "seed = int(torch.randint(2**62, ())) if self.training else None", "seed = int(torch.randint(2**62, ()))",
        "test_positions.py::test_positions_of_a_training_step",
    ),
    Bug(
        "seed-drawn-by-schemes-that-sample-only", "model.py",
        "if self.training else None", 'if self.training and self.pos.overrides("sample") else None',
        "test_positions.py::test_what_is_random_after_them_is_the_same_for_all_schemes",
    ),
    Bug(
        "positions-of-the-first-row-for-all", "attention/scheme.py",
        "return self.positions.flatten()", "return self.positions[:1].expand_as(self.positions).flatten()",
        "test_positions.py::test_each_row_has_its_own",
    ),
    Bug(
        "tile-of-the-wrong-keys", "attention/problem.py",
        "key_positions=self.pairwise.key_positions[..., block.columns]",
        "key_positions=self.pairwise.key_positions[..., : block.keys] + 1",
        "test_positions.py::test_relative_terms_go_by_them",
    ),
    Bug(
        "marks-of-new-tokens-only", "cache.py",
        "else self._marks.extend(marks, first)", "else self._marks.extend(marks, first).clone().fill_(0.5)",
        "test_cache.py::test_cached_logits_are_those_of_the_full_pass",
    ),
    Bug(
        "given-positions-forgotten-by-the-cache", "cache.py",
        "return Places(self._given[..., self.first_seen :]", "return Places(self._given[..., self.first_seen :] * 0",
        "test_positions.py::test_a_cache_reads_them",
    ),
    Bug(
        "gradient-of-a-tile-in-the-place-of-the-sum", "attention/tiles.py",
        "place += gradient", "place.copy_(gradient)",
        "test_tiles.py::test_equals_the_dense_formula",
    ),
    Bug(
        "weights-of-tiles-not-dropped-in-the-backward-pass", "attention/tiles.py",
        "weights.mul_(factors)\n", "pass\n",
        "test_tiles.py::test_equals_the_dense_formula",
    ),
    Bug(
        "small-weights-lost", "attention/tiles.py",
        "torch.threshold_(scores, -100.0, -math.inf)", "torch.threshold_(scores, -20.0, -math.inf)",
        "test_tiles.py::test_equals_the_dense_formula",
    ),
    Bug(
        "pieces-of-fire-off-by-one", "positions/fire.py",
        "[:, None] > units.argsort()", "[:, None] >= units.argsort()",
        "test_fire.py::test_equals_the_network_of_the_paper",
    ),
    Bug(
        "gates-of-cope-opened-by-hidden-keys", "positions/cope.py",
        ".sigmoid() * pairs.seen[..., -near:]", ".sigmoid()",
        "test_formulas.py::test_attention_is_the_formula",
    ),
    Bug(
        "cope-does-not-look-far-enough-back", "positions/cope.py",
        "position[..., 0].min() >= last", "True",
        "test_cope.py::test_far_keys_count_where_gates_are_closed",
    ),
    Bug(
        "forgetting-after-the-query-is-remembering", "positions/forgetting.py",
        "added if pairs.causal else -added.abs()", "added",
        "test_formulas.py::test_attention_is_the_formula",
    ),
    Bug(
        "sums-of-gates-in-float32", "positions/forgetting.py",
        "else torch.float64", "else torch.float32",
        "test_forgetting.py::test_far_along_the_text_digits_remain",
    ),
    Bug(
        "residual-initialisation-unscaled", "layers/initial.py",
        "of_block = std / (2 * num_layers) ** 0.5 if residual else std", "of_block = std",
        "test_model.py::test_initialisation_is_gpt2s",
    ),
    Bug(
        "scheme-initialised-before-the-trunk", "model.py",
        "        self.token_embedding = TokenEmbedding(",
        "        self.pos.tables(self.shape)\n        self.token_embedding = TokenEmbedding(",
        "test_schemes.py::test_trunk_and_what_is_drawn_next_are_those_of_no_scheme",
    ),
    Bug(
        "scheme-moves-the-generator", "model.py",
        "fork_rng(devices=[])", "fork_rng(devices=[], enabled=False)",
        "test_schemes.py::test_trunk_and_what_is_drawn_next_are_those_of_no_scheme",
    ),
    Bug(
        "dropout-of-attention-in-evaluation", "layers/block.py",
        "self.dropout_p if self.training else 0.0", "self.dropout_p",
        "test_evaluation.py::test_the_model_is_left_as_it_was",
    ),
    # Data
    Bug(
        "validation-overlaps-training", "data/corpus.py",
        '"validation": shares', '"validation": (shares[0] - 0.01, shares[1])',
        "test_data.py::test_verdict_and_shakespeare_counts",
    ),
    Bug(
        "target-not-shifted", "data/windows.py",
        "return window[:-1], window[1:]", "return window[:-1], window[:-1]",
        "test_data.py::test_windows_by_definition",
    ),
    Bug(
        "last-window-lost", "data/windows.py",
        "starts = len(self.token_ids) - self.max_length", "starts = len(self.token_ids) - self.max_length - 1",
        "test_data.py::test_windows_by_definition",
    ),
    Bug(
        "last-tokens-not-validated", "data/windows.py",
        "1 + -(-after_the_first // self.stride)", "1 + after_the_first // self.stride",
        "test_training.py::test_a_model_has_one_validation_loss "
        "test_evaluation.py::test_every_token_but_the_first_counts_once",
    ),
    Bug(
        "padding-of-the-last-window-counted", "data/windows.py",
        "value=self.IGNORED)", "value=0)",
        "test_training.py::test_a_model_has_one_validation_loss",
    ),
    Bug(
        "order-not-by-seed", "data/orders.py",
        "torch.Generator().manual_seed(self.seed)", "torch.Generator().manual_seed(1)",
        "test_data.py::test_order_depends_on_the_seed_alone",
    ),
    Bug(
        "every-epoch-in-the-same-order", "data/orders.py",
        "order = self._order(epoch)", "order = self._order(0)",
        "test_data.py::test_shuffled_goes_on_anywhere",
    ),
    Bug(
        "token-cache-without-encoding", "data/corpus.py",
        "{tokenizer.name} {sha256}", "{sha256}",
        "test_data.py::test_another_encoding_has_tokens_of_its_own",
    ),
    Bug(
        "token-cache-without-contents", "data/corpus.py",
        "{tokenizer.name} {sha256}", "{tokenizer.name} {path}",
        "test_data.py::test_changed_content_is_not_taken_from_the_cache",
    ),
    Bug(
        "text-that-changes-is-stored", "data/corpus.py",
        "if joined_sha256(hashes) != sha256:", "if False:",
        "test_data.py::test_a_text_that_changes_while_it_is_read_is_not_stored",
    ),
    Bug(
        "damaged-tokens-not-noticed", "data/token_files.py",
        "    if not intact:", "    if False:",
        "test_data.py::test_a_damaged_cache_is_made_anew",
    ),
    Bug(
        "byte-order-mark-kept", "data/corpus.py",
        'else "utf-8-sig")', 'else "utf-8")',
        "test_data.py::test_byte_order_mark_is_dropped_and_line_ends_stay",
    ),
    Bug(
        "test-part-chooses-the-weights", "data/module.py",
        "CoveringWindows(self.corpus.validation, context_length", "CoveringWindows(self.corpus.test, context_length",
        "test_characters.py::test_the_test_part_is_what_is_reported",
    ),
    Bug(
        "validation-part-reported", "data/corpus.py",
        'return ("test", self.test) if len(self.test)', 'return ("test", self.validation) if len(self.test)',
        "test_characters.py::test_the_parts_of_a_text",
    ),
    Bug(
        "split-not-in-the-cache-key", "data/corpus.py",
        "shares if split.test else shares[:1]", "shares[1:]",
        "test_characters.py::test_the_parts_of_a_text",
    ),
    # Training
    Bug(
        "tables-decay", "training/optim.py",
        "if p.dim() >= 2 and id(p) not in tables]", "if p.dim() >= 2]",
        "test_training.py::test_only_the_matrices_of_the_trunk_decay",
    ),
    Bug(
        "factor-of-positions-dropped", "training/optim.py",
        "rate = config.learning_rate * config.position_learning_rate_factor", "rate = config.learning_rate",
        "test_training.py::test_what_a_scheme_learns_has_a_factor_of_its_own",
    ),
    Bug(
        "later-settings-refuse-older-runs", "runs/resume.py",
        "own = LATER | own", "pass",
        "test_resume.py::test_runs_from_before_there_was_a_setting",
    ),
    Bug(
        "warm-up-off-by-one", "training/optim.py",
        "return (step + 1) / warmup", "return step / warmup",
        "test_training.py::test_learning_rate",
    ),
    Bug(
        "gradient-not-clipped", "training/module.py",
        "gradient_clip_val or math.inf)", "math.inf)",
        "test_training.py::test_gradients_are_clipped",
    ),
    Bug(
        "learning-rate-of-a-longer-schedule-not-followed", "training/lightning_loops.py",
        'group["lr"] = base * factor(scheduler.last_epoch)', "pass",
        "test_resume.py::test_a_finished_run_is_extended",
    ),
    Bug(
        "torch-random-state-lost", "runs/state.py",
        'torch.set_rng_state(states["torch"].cpu())', "pass",
        "test_resume.py::test_cut_off_between_checkpoints",
    ),
    Bug(
        "python-random-state-lost", "runs/state.py",
        "random.setstate((version, tuple(internal), gauss))", "pass",
        "test_resume.py::test_every_random_generator_goes_on",
    ),
    Bug(
        "order-of-an-epoch-not-resumed", "training/checkpoints.py",
        "data.go_on(state.epoch, state.batches)", "data.go_on(state.epoch, 0)",
        "test_resume.py::test_cut_off_between_checkpoints",
    ),
    Bug(
        "best-loss-not-saved", "runs/state.py",
        "return values | seconds | {", 'return values | seconds | {"best_val_loss": math.inf} | {',
        "test_resume.py::test_the_best_weights_stay_the_best",
    ),
    Bug(
        "best-weights-are-the-last", "training/checkpoints.py",
        "if ours(pl_module).state.best_step == trainer.global_step:", "if True:",
        "test_resume.py::test_the_best_weights_stay_the_best",
    ),
    # Files
    Bug(
        "fsync-of-a-checkpoint-dropped", "settings/files.py",
        "            _sync(unfinished)\n", "            pass\n",
        "test_whole_files.py::test_a_checkpoint_is_on_the_disk_before_it_has_its_name",
    ),
    Bug(
        "fsync-of-a-folder-dropped", "settings/files.py",
        "            _sync(path.parent)\n", "            pass\n",
        "test_whole_files.py::test_a_checkpoint_is_on_the_disk_before_it_has_its_name",
    ),
    Bug(
        "fsync-of-the-best-weights-dropped", "runs/checkpoint_files.py",
        "with appearing_whole(path, durable=True) as file:", "with appearing_whole(path) as file:",
        "test_whole_files.py::test_a_checkpoint_is_on_the_disk_before_it_has_its_name",
    ),
    Bug(
        "checkpoint-written-in-place", "settings/files.py",
        "os.replace(unfinished, path)\n", "path.write_bytes(unfinished.read_bytes())\n",
        "test_whole_files.py::test_a_checkpoint_is_on_the_disk_before_it_has_its_name",
    ),
    Bug(
        "checkpoint-before-the-last-not-kept", "settings/files.py",
        "if previous is not None and path.exists():", "if False:",
        "test_resume.py::test_a_damaged_checkpoint_gives_way_to_the_one_before",
    ),
    Bug(
        "damaged-checkpoint-not-noticed", "runs/checkpoint_files.py",
        "if archive.testzip() is not None:", "if False:",
        "test_resume.py::test_a_damaged_checkpoint_gives_way_to_the_one_before",
    ),
    Bug(
        "damaged-weights-not-noticed", "runs/checkpoint_files.py",
        'if metadata["sha256"] != _sha256(metadata["poslab"], tensors):', "if False:",
        "test_checkpoint.py::test_one_flipped_exponent_bit_is_named",
    ),
    Bug(
        "checkpoint-may-run-code", "runs/checkpoint_files.py",
        'return torch.load(path, map_location="cpu", weights_only=True)',
        'return torch.load(path, map_location="cpu", weights_only=False)',
        "test_checkpoint.py::test_a_malicious_pickle_runs_nothing",
    ),
    Bug(
        "local-rank-taken-for-the-first-process", "runs/place.py",
        'whole_number("RANK", default=0)', 'whole_number("LOCAL_RANK", default=0)',
        "test_ranks.py::test_one_function_knows_the_rank",
    ),
    Bug(
        "document-goes-on-in-memory", "data/stream.py",
        "torch.tensor(start - max(first, document_start(self.ends, start)))", "torch.tensor(start - first)",
        "test_stream.py::test_what_a_row_has_read_is_of_one_document",
    ),
    Bug(
        "rows-of-a-stream-one-after-the-other", "data/orders.py",
        "at % self.rows * (self.count // self.rows) + at // self.rows", "at",
        "test_stream.py::test_each_row_reads_a_stretch_of_its_own_to_the_end",
    ),
    Bug(
        "windows-that-fill-memory-judged", "data/stream.py",
        "if number < first or not there:", "if not there:",
        "test_stream.py::test_a_scan_judges_every_window_once",
    ),
    Bug(
        "memory-begun-anew-in-each-window", "evaluation/losses.py",
        "here = memory.restarted(read)", "here = memory.restarted(0 * read)",
        "test_stream.py::test_losses_with_memory_are_those_of_reading_on",
    ),
    Bug(
        "memory-not-carried-from-step-to-step", "training/module.py",
        "loss, self.memory = loss_in_segments", "loss, _ = loss_in_segments",
        "test_stream.py::test_a_run_with_memory",
    ),
    Bug(
        "memory-not-resumed", "training/checkpoints.py",
        'if "memory" in checkpoint:', "if False:",
        "test_resume.py::test_cut_off_between_checkpoints",
    ),
    Bug(
        "memory-of-the-first-process-for-all", "training/checkpoints.py",
        "piece(len(memory.read), trainer.global_rank,", "piece(len(memory.read), 0,",
        "test_ranks.py::test_memory_is_of_each_process_its_rows",
    ),
    Bug(
        "memory-of-evaluation-stays", "evaluation/losses.py",
        "        model.memory_length = own\n", "        pass\n",
        "test_stream.py::test_the_same_targets_with_any_memory",
    ),
    Bug(
        "gain-over-oneself", "comparison/context.py",
        "np.minimum(best, own[length])", "own[length]",
        "test_context.py::test_only_what_is_better_than_all_were_before_counts",
    ),
    Bug(
        "easiest-tokens", "comparison/context.py",
        "np.argsort(-best", "np.argsort(best",
        "test_context.py::test_the_length_by_its_definition",
    ),
    Bug(
        "parts-of-a-batch-weigh-alike", "data/parts.py",
        "len(own) / len(index)", "1 / self.world_size",
        "test_ranks.py::test_parts_of_a_batch_are_the_batch",
    ),
    Bug(
        "two-processes-in-one-folder", "runs/folder.py",
        "        lock.acquire()\n", "        pass\n",
        "test_resume.py::test_two_processes_at_one_folder",
    ),
    Bug(
        "summary-written-in-place", "runs/summary.py",
        "write_whole(file, json", "file.write_text(json",
        "test_whole_files.py::test_every_file_of_a_run_appears_whole",
    ),
    Bug(
        "values-of-a-wrong-type-not-noticed", "runs/readers.py",
        "if not _is_of(plain[name], hint):", "if False:",
        "test_left_out_runs.py::test_a_spoilt_run_is_named_and_left_out "
        "test_resume.py::test_a_checkpoint_with_an_impossible_state_is_refused",
    ),
    # Sweeps
    Bug(
        "identity-ignores-the-learning-rate", "settings/schema.py",
        "    learning_rate: float = setting(least=0)\n",
        "    learning_rate: float = setting(role=Role.SPEED)\n",
        "test_roles.py::test_what_a_role_means",
    ),
    Bug(
        "identity-ignores-the-text", "sweep/plan.py",
        "_text_fingerprint(config.data.path)", '""',
        "test_sweep.py::test_identity_is_settings_and_text",
    ),
    Bug(
        "identity-ignores-the-scheme-s-source", "sweep/plan.py",
        "return _hash(config.pos_name, _plain(config), *_sources(config))",
        'return _hash(config.pos_name, _plain(config), _sources(config)[0], "")',
        "test_sweep.py::test_an_edited_scheme_is_another_job_and_another_group",
    ),
    # Tasks
    Bug(
        "the-same-steps-in-every-epoch", "data/orders.py",
        "torch.arange(epoch * self.count, (epoch + 1) * self.count)", "torch.arange(self.count)",
        "test_task_training.py::test_epochs_are_consecutive_steps "
        "test_task_training.py::test_a_run_reads_the_batches_of_its_seed_step_by_step",
    ),
    Bug(
        "positions-of-a-task-forgotten", "training/loss.py",
        "model.hidden_where(asked, tokens, positions)", "model.hidden_where(asked, tokens)",
        "test_task_training.py::test_only_what_is_asked_is_learned",
    ),
    Bug(
        "exact-by-answers", "evaluation/answers.py",
        "sum(row.exact for row in rows)", "sum(row.right > 0 for row in rows)",
        "test_task_training.py::test_metrics_are_shares_of_examples_and_of_answers",
    ),
    Bug(
        "first-write-counts", "tasks/flip_flop.py",
        "torch.arange(steps), 0).cummax(1).values", "torch.arange(steps), 0)",
        "test_tasks.py::test_every_answer_is_the_oracles",
    ),
    Bug(
        "failed-job-counted-as-finished", "sweep/job.py",
        "            files.add_failure(reason)\n", "            pass\n",
        "test_sweep.py::test_a_job_does_not_start_over_among_foreign_files",
    ),
    Bug(
        "extended-run-counts-as-trained-at-once", "runs/resumed_run.py",
        "if was[name] != now[name]]", "if False]",
        "test_resume.py::test_an_extended_run_is_none_that_was_trained_for_as_long_at_once",
    ),
    Bug(
        "job-goes-on-with-an-extended-run", "sweep/job.py",
        "elif _lengths(content", "elif False and _lengths(content",
        "test_sweep.py::test_a_job_that_is_refused_leaves_its_folder_alone",
    ),
    Bug(
        "identity-ignores-weights-to-begin-with", "sweep/plan.py",
        "    if folder is None:\n", "    if True:\n",
        "test_sweep.py::test_weights_to_begin_with_are_part_of_a_job_by_their_contents",
    ),
    Bug(
        "run-goes-on-from-its-beginning-with-other-weights", "training/run.py",
        "begins = earlier is None or earlier.checkpoint is None", "begins = earlier is None",
        "test_resume.py::test_weights_to_begin_with",
    ),
    Bug(
        "any-refusal-starts-a-job-over", "runs/checkpoint_files.py",
        "else SettingError\n", "else NothingIntact\n",
        "test_sweep.py::test_a_job_that_is_refused_leaves_its_folder_alone",
    ),
    Bug(
        "any-folder-is-a-finished-job", "sweep/plan.py",
        "return RunFolder(self.folder).finished", "return self.folder.exists()",
        "test_sweep.py::test_only_what_is_not_finished_runs_again",
    ),
    Bug(
        "a-new-length-is-never-evaluated", "sweep/plan.py",
        "return self.trained and not self.unmeasured", "return self.trained",
        "test_sweep.py::test_another_length_is_only_evaluated",
    ),
    Bug(
        "runs-of-other-code-reused-without-a-word", "sweep/plan.py",
        'return "" if before == now else', 'return "" if before else',
        "test_sweep.py::test_runs_of_other_code_are_reused_only_with_a_line",
    ),
    Bug(
        "edited-schemes-in-one-group", "comparison/groups.py",
        "    if _classes(run) in edited:\n", "    if False:\n",
        "test_comparable_runs.py::test_seeds_of_an_edited_scheme_are_no_group",
    ),
    Bug(
        "solved-at-the-last-validation", "training/module.py",
        "if state.solved_step is None and self.figures", "if self.figures",
        "test_wrong_answers.py::test_solved_is_the_first_validation_that_is_exact",
    ),
    Bug(
        "figures-of-seeds-that-solved", "comparison/tasks.py",
        "if not solved or run.summary", "if run.summary",
        "test_task_report.py::test_figures_are_over_all_seeds_and_those_that_solve_stand_beside_them",
    ),
    Bug(
        "best-run-answers", "comparison/tasks.py",
        "runs[(len(runs) - 1) // 2]", "runs[-1]",
        "test_task_report.py::test_the_run_of_the_median_figure_answers",
    ),
    # Evaluation
    Bug(
        "token-counted-twice", "evaluation/losses.py",
        "torch.arange(length) >= length - stride", "torch.arange(length) >= length - stride - 1",
        "test_evaluation.py::test_every_token_but_the_first_counts_once",
    ),
    Bug(
        "last-tokens-of-other-places", "evaluation/losses.py",
        "ends = torch.arange(reach, len(tokens)", "ends = torch.arange(length, len(tokens)",
        "test_evaluation.py::test_last_losses_are_of_the_same_tokens_at_every_length",
    ),
    Bug(
        "probe-shifted-by-one", "evaluation/losses.py",
        "torch.cat([torch.zeros(1), sliding.losses])", "torch.cat([sliding.losses, torch.zeros(1)])",
        "test_probes.py::test_losses_of_a_probe_are_those_of_its_tokens",
    ),
    Bug(
        "dropout-in-evaluation", "evaluation/losses.py",
        "    model.eval()\n", "    model.train()\n",
        "test_evaluation.py::test_the_model_is_left_as_it_was",
    ),
    # Comparison
    Bug(
        "text-as-sure-as-seeds", "comparison/two_way.py",
        "both, larger = of_seeds + of_blocks - of_rest, np.maximum(of_seeds, of_blocks)", "both = larger = of_seeds",
        "test_two_way.py::test_seeds_alone_would_promise_too_much",
    ),
    Bug(
        "other-text-in-the-other-direction", "comparison/two_way.py",
        "d.significant and (d.mean or 0) * (over_seeds[label].mean or 0) > 0", "d.significant",
        "test_two_way.py::test_what_is_shown_for_other_text_is_no_other_direction",
    ),
    Bug(
        "other-text-uncorrected", "comparison/two_way.py",
        "p_value=corrected[label]", "p_value=d.p_value",
        "test_two_way.py::test_other_text_has_a_correction_of_its_own",
    ),
    Bug(
        "steps-to-the-lowest-loss-of-the-baseline", "comparison/effects.py",
        "level = others[-1][1]", "level = min(loss for _, loss in others)",
        "test_effects.py::test_a_baseline_that_ends_above_its_best_is_met_at_its_own_first_step",
    ),
    Bug(
        "unpaired-test", "comparison/statistics.py",
        "stats.ttest_rel(a, b)", "stats.ttest_ind(a, b)",
        "test_statistics.py::test_difference_against_scipy",
    ),
    Bug(
        "one-sided-test", "comparison/statistics.py",
        "stats.ttest_rel(a, b)", 'stats.ttest_rel(a, b, alternative="less")',
        "test_statistics.py::test_difference_against_scipy",
    ),
    Bug(
        "seeds-paired-by-order", "comparison/statistics.py",
        "np.array([of_seeds[seed] for seed in seeds], dtype=float)",
        "np.array(list(of_seeds.values())[: len(seeds)], dtype=float)",
        "test_statistics.py::test_pairs_by_seed_not_by_order",
    ),
    Bug(
        "contrasts-not-corrected", "comparison/contrasts.py",
        "return [corrected[str(place)] for place in range(len(p_values))]", "return list(p_values)",
        "test_contrasts.py::test_too_few_seeds_are_told",
    ),
    Bug(
        "null-as-sure-as-of-the-best", "comparison/contrasts.py",
        "return max((part.p for part in self.parts), default=1.0)",
        "return min((part.p for part in self.parts), default=1.0)",
        "test_contrasts.py::test_a_null_is_as_sure_as_of_the_worst_scheme",
    ),
    Bug(
        "contrasts-replaced", "runs/registered.py",
        "new = [contrast for contrast in dict.fromkeys(contrasts) if contrast not in known]",
        "new, earlier, known = list(contrasts), [], []",
        "test_contrasts.py::test_what_is_registered_stays",
    ),
    Bug(
        "settings-chosen-by-the-test", "comparison/grids.py",
        "group.score.choosing(run) for run in group.runs if not common or run.seed in common",
        "-group.score.of(run) for run in group.runs",
        "test_grids.py::test_settings_are_chosen_by_the_validation_alone",
    ),
    Bug(
        "holm-missing", "comparison/statistics.py",
        "(family - rank) * p_values[name]", "p_values[name]",
        "test_statistics.py::test_holm_worked_by_hand",
    ),
    Bug(
        "interval-of-the-normal-distribution", "comparison/statistics.py",
        "stats.t.ppf((1 + CONFIDENCE) / 2, n - 1)", "stats.norm.ppf((1 + CONFIDENCE) / 2)",
        "test_statistics.py::test_estimate_worked_by_hand",
    ),
    Bug(
        "missing-seeds-forgotten", "comparison/outcomes.py",
        "missing = tuple(sorted({*planned} - {*common}))", "missing = ()",
        "test_outcomes.py::test_missing_seeds_are_said_and_nothing_is_claimed",
    ),
    Bug(
        "diverged-seeds-forgotten", "comparison/compare.py",
        "group_runs([*diverged, *runs]", "group_runs([*runs]",
        "test_outcomes.py::test_a_run_that_diverged_is_on_the_page",
    ),
    Bug(
        "survivors-decide", "comparison/statistics.py",
        "p_value = signed_rank_test(outcomes.differences)", "p_value = d.p_value or 0.0",
        "test_outcomes.py::test_survivors_alone_claim_nothing",
    ),
    Bug(
        "family-of-the-runs-that-are-there", "comparison/statistics.py",
        "tested = max(1, family, len(testable))", "tested = max(1, len(testable))",
        "test_outcomes.py::test_holm_s_family_is_the_planned_one",
    ),
    Bug(
        "best-validation-compared", "runs/summary.py",
        'self.best_val_loss if validation == "best" else self.last_val_loss', "self.best_val_loss",
        "test_selection.py::test_the_end_of_the_schedule_is_compared_unless_the_best_is_asked_for",
    ),
    Bug(
        "runs-of-other-code-compared-without-a-caveat", "comparison/provenance.py",
        "[s.code_fingerprint for s in summaries]", "[None for s in summaries]",
        "test_provenance.py::test_facts_that_differ_stand_beside_the_answers",
    ),
    Bug(
        "edited-scheme-compared-without-a-caveat", "comparison/provenance.py",
        "[r.summary.scheme_fingerprint for r in of_scheme]", "[None for r in of_scheme]",
        "test_comparable_runs.py::test_a_scheme_whose_code_changed_between_runs",
    ),
    Bug(
        "caveats-not-printed", "commands/compare.py",
        "for caveat in section.comparison.caveats:", "for caveat in ():",
        "test_comparison.py::test_caveats_stand_with_the_answers",
    ),
    Bug(
        "runs-of-other-dropout-compared", "settings/schema.py",
        "    dropout: float = setting(least=0, below=1)\n",
        "    dropout: float = setting(least=0, below=1, role=Role.OUTPUT)\n",
        "test_comparable_runs.py::test_runs_that_differ_in_more_than_the_scheme",
    ),
    Bug(
        "limit-included", "settings/roles.py",
        '"below": (operator.lt,', '"below": (operator.le,',
        "test_bad_input.py::test_settings_of_a_run",
    ),
    Bug(
        "limit-gone", "settings/schema.py",
        "    batch_size: int = setting(4, least=1)", "    batch_size: int = 4",
        "test_bad_input.py::test_the_limits_that_numbers_have",
    ),
    # Command line
    Bug(
        "quotes-taken-from-a-prompt", "settings/command_line.py",
        "            values.setdefault(name, []).append(value)",
        "            values.setdefault(name, []).append(value.strip('\"'))",
        "test_command_line.py::test_any_text_arrives_as_it_was_typed",
    ),
    Bug(
        "difference-from-the-baseline-turned-round", "comparison/figures.py",
        "loss - course[place]", "course[place] - loss",
        "test_figures.py::test_the_difference_from_the_baseline_stands_beside_the_curves",
    ),
    Bug(
        "better-summed-up-as-worse", "comparison/sections.py",
        "better if d.leaning * self.score.metric.sign < 0 else worse", "worse",
        "test_report.py::test_many_answers_are_summed_up_first",
    ),
    Bug(
        "less-is-better-of-shares-in-the-summary", "comparison/sections.py",
        "better if d.leaning * self.score.metric.sign < 0 else worse",
        "better if d.leaning < 0 else worse",
        "test_comparison_by_metric.py::test_each_task_and_text_is_compared_by_itself",
    ),
    Bug(
        "less-is-better-of-shares-in-the-answers", "comparison/sentences.py",
        '"better" if d.mean * metric.sign < 0 else "worse"', '"better" if d.mean < 0 else "worse"',
        "test_comparison_by_metric.py::test_a_task_is_compared_by_what_is_exact_beyond_its_range",
    ),
    Bug(
        "less-is-better-of-shares-in-the-order", "comparison/groups.py",
        "return diverged, self.score.metric.sign * self.estimate.mean,", "return diverged, self.estimate.mean,",
        "test_comparison_by_metric.py::test_a_task_is_compared_by_what_is_exact_beyond_its_range",
    ),
    Bug(
        "shares-claimed-by-the-t-test-alone", "comparison/statistics.py",
        "p_value = max(p_value, sign_flip_test(a - b) if mean else 1.0)", "pass",
        "test_statistics.py::test_nearly_equal_differences_claim_no_more_than_equal_ones",
    ),
    Bug(
        "one-seed-too-few-would-do", "comparison/statistics.py",
        "(1 - CONFIDENCE))) + 1\n", "(1 - CONFIDENCE)))\n",
        "test_statistics.py::test_the_seeds_that_would_do_are_enough_and_no_fewer_are",
    ),
    Bug(
        "intervals-of-shares-beyond-all", "comparison/statistics.py",
        "min(1.0, mean + half)", "mean + half",
        "test_statistics.py::test_shares_and_their_intervals",
    ),
    Bug(
        "tasks-compared-within-their-range", "runs/finished.py",
        "for length in lengths if length > trained_to]", "for length in lengths if length >= trained_to]",
        "test_comparison_by_metric.py::test_a_task_is_compared_by_what_is_exact_beyond_its_range",
    ),
    Bug(
        "held-out-part-not-what-counts", "runs/summary.py",
        "return of_validation if self.test_loss is None else self.test_loss", "return of_validation",
        "test_comparison_by_metric.py::test_a_held_out_part_of_a_text_is_what_counts",
    ),
    Bug(
        "ties-of-what-is-monitored-not-broken", "training/module.py",
        "better = (monitored, state.last_val_loss) < (state.best_monitored, state.best_val_loss)",
        "better = monitored < state.best_monitored",
        "test_task_training.py::test_monitor_chooses_the_best_weights_and_when_to_stop",
    ),
    Bug(
        "best-figure-forgotten-where-a-run-goes-on", "training/module.py",
        "            state.best_monitored, state.best_val_loss = monitored, state.last_val_loss\n",
        "            state.best_val_loss = state.last_val_loss\n",
        "test_task_training.py::test_monitor_chooses_the_best_weights_and_when_to_stop",
    ),
    Bug(
        "early-stopping-watches-the-loss-whatever-is-monitored", "training/trainer.py",
        'if settings.monitor == LOSS else (IMPROVEMENTS, "max")', "",
        "test_task_training.py::test_monitor_chooses_the_best_weights_and_when_to_stop",
    ),
    Bug(
        "seeds-left-in-the-command-that-repeats", "comparison/repeat.py",
        "not in NOT_REPEATED | {Role.SEED}]", "not in NOT_REPEATED]",
        "test_repeat_command.py::test_one_command_for_all_seeds",
    ),
    Bug(
        "exit-code-0-on-an-error", "commands/cli.py",
        '_exit(end(f"error: {message}", exit_code))', '_exit(end(f"error: {message}", 0))',
        "test_config.py::test_one_line_before_torch",
    ),
    Bug(
        "traceback-for-an-unforeseen-error", "commands/cli.py",
        "        _stop(_report(error, script, debug), exit_code=1)\n", "        raise\n",
        "test_diagnosis.py::test_an_unexpected_fault_in_a_run",
    ),
    Bug(
        "code-from-outside-without-permission", "runs/code.py",
        "if allow_code or not foreign:", "if True:",
        "test_evaluate_script.py::test_schemes_from_outside_are_imported_only_if_allowed",
    ),
    # Schemes as settings
    Bug(
        "settings-of-the-class-before-stay", "settings/schemes.py",
        "        place.clear()\n", "",
        "test_scheme_settings.py::test_schemes_are_chosen_by_name_or_class_in_any_order",
    ),
    Bug(
        "name-of-a-scheme-over-its-settings", "settings/composed.py",
        'key=lambda setting: setting.partition("=")[0].count(".")', 'key=lambda setting: ""',
        "test_scheme_settings.py::test_schemes_are_chosen_by_name_or_class_in_any_order",
    ),
    Bug(
        "code-within-a-scheme-without-permission", "settings/schemes.py",
        "yield from (target for value in node.values()", "yield from (target for value in ()",
        "test_scheme_settings.py::test_a_scheme_of_a_stranger_within_one_of_poslab_s",
    ),
    Bug(
        "code-within-a-scheme-not-counted", "settings/schemes.py",
        "return [type(scheme), *(found for part in inner for found in classes(part))]", "return [type(scheme)]",
        "test_scheme_settings.py::test_a_scheme_of_a_stranger_within_one_of_poslab_s",
    ),
    Bug(
        "settings-of-another-class-in-labels", "comparison/groups.py",
        "for other in namesakes if other.get(of) == settings.get(of))", "for other in namesakes)",
        "test_scheme_settings.py::test_labels_tell_what_differs_and_no_more",
    ),
    Bug(
        "random-positions-not-sorted", "positions/randomized.py",
        "[:length].sort().values", "[:length]",
        "test_combined.py::test_a_model_draws_in_training_and_else_where_it_is_told",
    ),
    Bug(
        "inner-scheme-sees-the-outer-context", "positions/randomized.py",
        "return replace(shape, context_length=self.max_position)", "return shape",
        "test_combined.py::test_a_model_draws_in_training_and_else_where_it_is_told",
    ),
    Bug(
        "larger-of-two-windows", "positions/combined.py",
        "window = min((terms.window", "window = max((terms.window",
        "test_combined.py::test_terms_of_both",
    ),
    Bug(
        "joined-tables-end-in-zeros", "positions/combined.py",
        "first.repeat_interleave(before, axis), table, last.repeat_interleave(after, axis)",
        "0 * first.repeat_interleave(before, axis), table, 0 * last.repeat_interleave(after, axis)",
        "test_combined.py::test_terms_of_both",
    ),
    Bug(
        "marks-of-two-schemes-mixed-up", "positions/combined.py",
        "first, second = marks[..., :count],", "second, first = marks[..., :count],",
        "test_combined.py::test_scores_are_those_of_both",
    ),
    Bug(
        "bias-of-keys-drops-the-other-s-scores", "positions/combined.py",
        '            if bias is None and scheme.overrides("scores"):\n                return None\n', "",
        "test_combined.py::test_scores_are_those_of_both",
    ),
    Bug(
        "hooks-tried-in-the-first-layer-alone", "positions/checks.py",
        "range(shape.num_layers) if layers is None else layers", "(0,)",
        "test_scheme_checks.py::test_refused_when_the_model_is_made",
    ),
    Bug(
        "hooks-may-mix-the-rows-of-a-batch", "positions/trial.py",
        "same = torch.allclose(mapped[1], changed[1], rtol=near, atol=near)", "same = True",
        "test_scheme_checks.py::test_refused_when_the_model_is_made",
    ),
    Bug(
        "hooks-may-look-at-the-next-token", "positions/trial.py",
        "for place in {0, self.length - 1}:", "for place in {0}:",
        "test_scheme_checks.py::test_refused_when_the_model_is_made",
    ),
    Bug(
        "tables-of-other-shapes-loaded", "runs/checkpoint.py",
        "if {name: table.shape for name, table in needed.items()} !=", "if False and {} !=",
        "test_other_settings.py::test_tables_of_other_shapes_are_refused",
    ),
    Bug(
        "other-settings-over-the-ordinary-evaluation", "commands/evaluate.py",
        "    if checkpoint.settings:\n        parts", "    if False:\n        parts",
        "test_other_settings.py::test_an_evaluation_says_what_was_trained_and_has_a_file_of_its_own",
    ),
    Bug(
        "lengths-of-other-settings-kept", "evaluation/files.py",
        'same = ("weights_sha256", "settings")', 'same = ("weights_sha256",)',
        "test_other_settings.py::test_other_settings_that_share_a_long_name_share_no_lengths",
    ),
    # Code
    Bug(
        "fingerprint-ignores-the-scheme", "runs/code.py",
        "return None if files is None else _hash(files)", "return None",
        "test_code.py::test_bases_and_imported_modules_beside_a_scheme_count",
    ),
    Bug(
        "run-goes-on-with-an-edited-scheme", "runs/resumed_run.py",
        'raise SettingError("resume", self.folder, f"{problem}, the old code goes on with this one")', "pass",
        "test_code.py::test_a_run_does_not_go_on_with_an_edited_scheme",
    ),
]  # fmt: skip


@dataclass(frozen=True)
class Result:
    bug: Bug
    verdict: str  # caught, SURVIVED, NOT PLANTED or UNCLEAR
    detail: str


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("words", nargs="*", help="plant only bugs with one of these in their name")
    parser.add_argument("--list", action="store_true", help="print the names and what must notice each")
    arguments = parser.parse_args()
    bugs = [bug for bug in BUGS if not arguments.words or any(word in bug.name for word in arguments.words)]
    if arguments.list:
        print("\n".join(f"{bug.name:48} {bug.tests}" for bug in bugs))
        return 0
    preload()
    with tempfile.TemporaryDirectory(prefix="planted-bugs-") as scratch:
        copy = Path(scratch) / "copy"
        if not tests_pass_without_bugs(bugs, copy):
            return 1
        results = [try_bug(bug, copy) for bug in bugs]
    counts = Counter(result.verdict for result in results)
    print(f"\n{len(results)} bugs: " + ", ".join(f"{number} {verdict}" for verdict, number in counts.items()))
    for result in results:
        if result.verdict != "caught":
            print(f"{result.verdict:12} {result.bug.name}: {result.detail}")
    return 0 if set(counts) == {"caught"} else 1


def preload() -> None:
    """Loads the libraries once: every bug's tests run in a fork of this process, with nothing of poslab in it."""
    os.environ["OMP_NUM_THREADS"] = "1"
    for library in LIBRARIES:
        importlib.import_module(library)
    # One example that fails is enough; it need not be made small.
    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    hypothesis.settings.register_profile("without shrinking", phases=phases, database=None)
    hypothesis.settings.load_profile("without shrinking")


def tests_pass_without_bugs(bugs: list[Bug], copy: Path) -> bool:
    """Whether the named tests pass as things are: one that always fails notices nothing."""
    tests = dict.fromkeys(path for bug in bugs for path in bug.paths)
    started = time.perf_counter()
    code, output = run_tests(copy, list(tests))
    print(f"without a bug: exit code {code} in {time.perf_counter() - started:.0f} s, {output.splitlines()[-1]}")
    if code:
        print(output)
    return code == 0


def try_bug(bug: Bug, copy: Path) -> Result:
    started = time.perf_counter()
    result = Result(bug, *plant_and_test(bug, copy))
    print(f"{result.verdict:12} {bug.name:48} {time.perf_counter() - started:4.0f} s  {result.detail}", flush=True)
    return result


def plant_and_test(bug: Bug, copy: Path) -> tuple[str, str]:
    """(verdict, what it rests on)."""
    file = REPOSITORY / "src" / "poslab" / bug.file
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    if text.count(bug.before) != 1:
        return "NOT PLANTED", f"{bug.file} has {bug.before!r} {text.count(bug.before)} times"
    code, output = run_tests(copy, bug.paths, {file: text.replace(bug.before, bug.after)})
    failed = re.search(r"^(?:FAILED|ERROR) tests/(.+?)(?: - .*)?$", output, re.MULTILINE)
    if code == 1 and failed:
        return "caught", f"by {failed[1]}"
    return ("SURVIVED", bug.tests) if code == 0 else ("UNCLEAR", f"exit code {code}: {output[-500:]}")


def run_tests(copy: Path, tests: list[str], changed: Mapping[Path, str] = MappingProxyType({})) -> tuple[int, str]:
    """pytest's exit code and output in a new copy of the repository, in which some files have other contents. Nothing
    that one bug leaves behind, such as tokens, meets another."""
    shutil.rmtree(copy, ignore_errors=True)
    for file in tracked_files():
        target = copy / file.relative_to(REPOSITORY)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
    for file, text in changed.items():
        (copy / file.relative_to(REPOSITORY)).write_text(text, encoding="utf-8")
    log = copy.with_name("log")
    process = multiprocessing.get_context("fork").Process(target=run_pytest, args=(copy, tests, log))
    process.start()
    process.join(TIME_LIMIT * len(tests))
    process.kill()
    process.join()
    return process.exitcode or 0, log.read_text(encoding="utf-8", errors="replace").strip()


def tracked_files() -> list[Path]:
    """What git tracks, or would: not the tokens that earlier runs have left."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout.splitlines()
    return [REPOSITORY / name for name in listed if (REPOSITORY / name).is_file()]


def run_pytest(copy: Path, tests: list[str], log: Path) -> None:
    """In the new process: the package that it imports, and that processes of its own import, is the copy's."""
    with log.open("wb") as opened:
        os.dup2(opened.fileno(), 1)
        os.dup2(opened.fileno(), 2)
    os.chdir(copy)
    os.environ["PYTHONPATH"] = str(copy / "src")
    sys.path.insert(0, str(copy / "src"))
    if not Path(str(importlib.import_module("poslab").__file__)).is_relative_to(copy):
        raise RuntimeError("poslab is not the copy's")
    options = ["-x", "-q", "-p", "no:cacheprovider", "-rfE", "--tb=no", "--hypothesis-seed=0"]
    sys.exit(pytest.main([*options, "-o", "addopts=", "-m", "not slow and not browser", *tests]))


if __name__ == "__main__":
    sys.exit(main())
