"""Command `check`: the contract of position schemes, tried on one scheme as the tests try it on poslab's own.

Each check makes small models with weights large enough for position to matter, and yields differences: what was
compared, what was found and what it should be (tensors of one shape), and how far apart they may be, as a proportion
of the largest value, at least 1.
"""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from poslab.attention import scheme_attention
from poslab.config.nodes import TARGET, with_settings
from poslab.config.schemes import node_of, parse_scheme
from poslab.config.scripts import CheckConfig
from poslab.errors import RunStopped, SettingError, UserError, as_typed
from poslab.hf.architectures import hf_equivalent
from poslab.hf.export import export
from poslab.model.cache import KeyValueCache
from poslab.model.decoder import GPT
from poslab.model.memory import MemoryGPT, decoder_of
from poslab.positions import HeadInputs, ModelShape, PositionScheme
from poslab.positions.base import Tables
from poslab.positions.contract import check_hooks
from poslab.runs.checkpoint import Checkpoint, load_checkpoint
from poslab.runs.checkpoint_files import save_weights
from poslab.runs.code import fingerprints

Difference = tuple[str, Tensor, Tensor, float]
# Two blocks of a kernel; heads, layers and channels of a head can't be taken for each other.
SIZES: dict[str, Any] = {"context_length": 150, "embed_dim": 24, "num_layers": 3, "num_heads": 2}
_SYMBOLS = [f"s{number}" for number in range(61)]
_NEAR = 1e-5  # two ways to the same numbers; a scheme may compute them in float32
RISING = torch.tensor([[0, 1, 2, 5, 6, 9, 20, 21, 22, 30], [3, 4, 7, 7, 7, 8, 11, 12, 15, 39]])


class NotTried(UserError):
    """Reason why a check says nothing about a scheme."""


def run_check(config: CheckConfig) -> None:
    """Print a line for each check of a scheme, with its settings and each of its variants. Raises RunStopped if one
    found a difference, and UserError for a scheme that can't be made."""
    scheme, failed = parse_scheme(with_settings({}, config.pos)), 0
    name, given = config.pos[TARGET], {key: value for key, value in config.pos.items() if key != TARGET}
    for tried in ({}, *scheme.variants):
        of_it = parse_scheme(node_of(scheme) | tried) if tried else scheme
        model = _model(of_it)  # or it says which hook gives what in float32, and here in float64
        unread = {"unread": torch.empty(0, dtype=torch.float64)}  # tokens are of the dtype of tables
        check_hooks(of_it, dict(model.position_tables.named_parameters()) or unread, model.shape)
        print(name, *(f"pos.{key}={as_typed(value)}" for key, value in (given | tried).items()))
        for what, check in CHECKS.items():
            result, words = outcome(check, of_it)
            failed += result == "differs"
            print(f"{what:20}  {result:9}  {words}", flush=True)
        print()
    if failed:
        raise RunStopped(f"{name}: {failed} check{'s' * (failed > 1)} found differences")


def outcome(check: Callable[[PositionScheme], Iterator[Difference]], scheme: PositionScheme) -> tuple[str, str]:
    """Return ("ok", the largest relative difference), ("differs", what, and by how much) or ("not tried", why)."""
    torch.manual_seed(0)
    largest, limit = 0.0, 0.0
    try:
        for what, found, expected, room in check(scheme):
            apart = float((found - expected).abs().max().detach() / expected.abs().max().detach().clamp(min=1))
            largest, limit = max((largest, limit), (apart, room))
            if not apart <= room:  # NaN is not
                return "differs", f"{what}: by {apart:.2g}, at most {room:g} is right"
    except NotTried as reason:
        return "not tried", str(reason)
    except UserError as error:
        return "differs", str(error)
    except Exception as error:  # whatever a scheme raises is what was to be found
        return "differs", " ".join(f"{type(error).__name__}: {error}".split())
    return "ok", f"to {largest:.0e}, at most {limit:g} is right" if largest else "to the bit"


def _model(scheme: PositionScheme, **sizes: Any) -> GPT:
    torch.manual_seed(0)
    try:
        model = decoder_of(scheme, vocab_size=len(_SYMBOLS), dropout=0.0, **SIZES | sizes)
    except SettingError as refused:
        raise NotTried(str(refused)) from None
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model.double().eval()


def _tokens(length: int) -> Tensor:
    return torch.randint(len(_SYMBOLS), (2, length))


def check_formula(scheme: PositionScheme) -> Iterator[Difference]:
    """Compare the weights of attention, by two roads, with those of `reference_score`, in every layer."""
    if not has_formula(scheme):
        raise NotTried("it has no reference_score")
    _model(scheme, context_length=22, num_layers=2, num_heads=3)  # which it may refuse
    for causal, positions in ((True, list(range(8))), (False, list(range(8))), (True, [0, 1, 2, 5, 8, 9, 13, 21])):
        shape = ModelShape(positions[-1] + 1, 24, 2, 3, causal)
        tables = {name: (x + 0.5 * torch.randn_like(x)).double() for name, x in scheme.tables(shape).items()}
        q, k = torch.randn(2, 1, 3, 8, 8, dtype=torch.float64)  # (B, H, T, Dh)
        x, values = torch.randn(1, 8, 24, dtype=torch.float64), torch.eye(8, dtype=torch.float64).expand(1, 3, -1, -1)
        how: dict[str, Any] = {"x": x, "num_layers": 2, "positions": torch.tensor(positions), "causal": causal}
        seen = [[j <= i or not causal for j in range(8)] for i in range(8)]
        for layer in range(2):
            expected = _weights(scheme, tables, HeadInputs(q[0], k[0], x[0], positions, seen, shape, layer, head=0))
            for backend in ("reference", "blockwise"):
                # Less what a table adds to the values themselves.
                how |= {"layer": layer, "backend": backend}
                out, nothing = (scheme_attention(scheme, tables, q, k, v, **how) for v in (values, 0 * values))
                what = f"{backend}, layer {layer}, positions {positions}{'' if causal else ', not causal'}"
                yield what, (out - nothing)[0], expected, 1e-7
    if any(map(scheme.overrides, ("embed", "mix"))) and not scheme.overrides("reference_score"):
        raise NotTried("scores are plain ones, as they should be; `embed` and `mix` have no formula here")


def has_formula(scheme: PositionScheme) -> bool:
    """Return whether the scheme has a scalar formula for its scores: a foreign one may have none."""
    hooks = ("rotate", "query", "key", "query_scale", "relative", "score_mod", "key_bias")
    known = scheme.overrides("reference_score") or scheme.overrides("reference_null")
    return known or not any(map(scheme.overrides, hooks))


def _weights(scheme: PositionScheme, tables: Tables, text: HeadInputs) -> Tensor:
    """Return the weights of all heads, (H, T, T), pair by pair."""
    heads, count = range(text.shape.num_heads), range(len(text.positions))
    weights = torch.zeros(len(heads), len(count), len(count), dtype=torch.float64)
    for head, i in product(heads, count):
        of_head, keys = replace(text, head=head), [j for j in count if text.seen[i][j]]
        scores = [scheme.reference_score(tables, of_head, i, j) for j in keys]
        null = scheme.reference_null(tables, of_head, i)
        scores += [] if null is None else [null]
        weights[head, i, keys] = torch.tensor(scores, dtype=torch.float64).softmax(0)[: len(keys)]
    return weights


def check_causal(scheme: PositionScheme) -> Iterator[Difference]:
    """Compare logits before a token with those before another one."""
    model, tokens = _model(scheme), _tokens(SIZES["context_length"])
    changed = torch.cat([tokens[:, :140], (tokens[:, 140:] + 1) % len(_SYMBOLS)], dim=1)
    yield "logits before a changed token", model(changed)[:, :140], model(tokens)[:, :140], 0.0


def check_kernels(scheme: PositionScheme) -> Iterator[Difference]:
    """Compare logits and gradients of the kernels that training takes with those of the dense formula."""
    for causal in (True, False):
        tokens, both = _tokens(SIZES["context_length"]), []
        for backend in ("reference", "auto"):
            model = _model(scheme, causal=causal, attention_backend=backend)
            logits = model(tokens)
            logits.logsumexp(-1).sum().backward()
            both.append({"logits": logits.detach()} | {name: p.grad for name, p in model.named_parameters()})
            for name in (name for name, gradient in both[-1].items() if gradient is None):
                raise UserError(f"table {name.rpartition('.')[2]} gets no gradient, so that it would stay as it is")
        for name, expected in both[0].items():
            yield f"{'causal' if causal else 'not causal'}, {name}", both[1][name], expected, _NEAR


def check_bfloat16(scheme: PositionScheme) -> Iterator[Difference]:
    """Compare logits under bfloat16 autocast with those of float32."""
    model, tokens = _model(scheme).float(), _tokens(40)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = model(tokens).float()
    yield "logits", rounded, model(tokens), 0.05
    rounded.square().mean().backward()
    for name, gradient in ((name, p.grad) for name, p in model.named_parameters() if p.grad is not None):
        yield f"gradient of {name}, which is finite", 0 * gradient, torch.tensor(0.0), 0.0


def check_cache(scheme: PositionScheme) -> Iterator[Difference]:
    """Compare logits of a text that comes in parts with those of the full pass."""
    model, tokens = _model(scheme), _tokens(40)
    for sizes in ([1] * 40, [3, 1, 20, 1, 15]):
        cache = KeyValueCache()
        found = torch.cat([model(part, cache) for part in tokens.split(sizes, dim=1)], dim=1)
        yield f"parts of {sizes[:3]} ... tokens", found, model(tokens), _NEAR


def check_positions(scheme: PositionScheme) -> Iterator[Difference]:
    """Compare rows that are given positions of their own with each alone, and with a cache that reads them."""
    model, tokens = _model(scheme), _tokens(10)
    together, cache = model(tokens, positions=RISING), KeyValueCache()
    alone = [model(row[None], positions=own)[0] for row, own in zip(tokens, RISING, strict=True)]
    yield "rows together", together, torch.stack(alone), _NEAR
    parts = zip(tokens.split([4, 1, 5], 1), RISING.split([4, 1, 5], 1), strict=True)
    yield "by a cache", torch.cat([model(part, cache, own) for part, own in parts], 1), together, _NEAR
    if scheme.shift_invariant:
        yield "all moved by 37 (`shift_invariant` is true)", model(tokens, positions=RISING + 37), together, _NEAR


def check_memory(scheme: PositionScheme) -> Iterator[Difference]:
    """Compare a text read in segments, with a memory that keeps all of it, with a cache and with the full pass."""
    tokens, model = _tokens(40), _model(scheme, context_length=8, memory_length=40)
    assert isinstance(model, MemoryGPT)
    found, cache = model.hidden_in_segments(tokens)[0], model.new_cache()
    by_cache = [model.hidden(part, cache) for part in tokens.split([9, 1, 30], 1)]
    yield "segments of 8, by a cache", torch.cat(by_cache, 1), found, _NEAR
    if not (scheme.overrides("mix") or scheme.overrides("embed")):  # which may look back, in a segment only within it
        yield "segments of 8, in one pass", found, model.hidden(tokens), _NEAR


def check_files(scheme: PositionScheme) -> Iterator[Difference]:
    """Compare the model with itself, saved and loaded."""
    with tempfile.TemporaryDirectory() as folder:
        loaded, tokens, expected = _saved_and_loaded(scheme, folder)
    yield "saved and loaded", loaded.model(tokens, positions=loaded.model.text_positions(40)), expected, 0.0


def check_export(scheme: PositionScheme) -> Iterator[Difference]:
    """Compare the model with itself, exported and loaded by transformers."""
    try:
        import transformers
    except ImportError:
        raise NotTried("transformers is not installed") from None
    from poslab.hf.modeling_poslab import PoslabForCausalLM

    transformers.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        loaded, tokens, expected = _saved_and_loaded(scheme, folder)
        export(loaded, exported := Path(folder) / "exported")
        kind: Any = PoslabForCausalLM if hf_equivalent(loaded.model) is None else transformers.AutoModelForCausalLM
        yield "exported", kind.from_pretrained(exported).eval()(tokens).logits, expected, _NEAR


@torch.no_grad()
def _saved_and_loaded(scheme: PositionScheme, folder: str) -> tuple[Checkpoint, Tensor, Tensor]:
    """Return a model from a file in the folder, tokens, and the logits that it had of them before it was saved."""
    model, tokens = _model(scheme, context_length=40).float(), _tokens(40)
    sizes = SIZES | {"context_length": 40, "dropout": 0.0}
    config = {"pos": node_of(scheme), "model": sizes, "data": {}, "seed": 1}
    about = {"config": config, "pos": "scheme", "observed": None, "symbols": _SYMBOLS, "data_sha256": ""}
    model.seed = 1  # of positions that are drawn
    expected = model(tokens, positions=model.text_positions(40))  # before others are made
    save_weights(file := Path(folder) / "weights.safetensors", model.state_dict(), about | fingerprints(scheme))
    return load_checkpoint(file, allow_code=True), tokens, expected


class LargestTensor(TorchDispatchMode):
    """Mode that notes the bytes of the largest tensor in memory; a view counts as all of its storage."""

    bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor) and not tensor.is_meta:
                self.bytes = max(self.bytes, tensor.untyped_storage().nbytes())
        return result


def check_growth(scheme: PositionScheme) -> Iterator[Difference]:
    """Compare the largest tensor of a training step with that of one of a quarter of the length."""
    largest = []
    for length in (384, 1536):
        model = _model(scheme, context_length=length, embed_dim=16, num_layers=1).float()
        with LargestTensor() as seen:  # type: ignore[no-untyped-call]
            model(_tokens(length)).sum().backward()
        largest.append(torch.tensor(float(seen.bytes)))
    yield "times as large as linear", largest[1] / largest[0] / 4, torch.tensor(1.0), 1.0  # quadratic: by 3


CHECKS: dict[str, Callable[[PositionScheme], Iterator[Difference]]] = {
    "formula of the paper": check_formula,
    "no look ahead": check_causal,
    "kernels": check_kernels,
    "bfloat16": check_bfloat16,
    "cache": check_cache,
    "given positions": check_positions,
    "memory": check_memory,
    "files": check_files,
    "export": check_export,
    "linear memory": check_growth,
}
