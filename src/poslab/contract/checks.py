"""Checks of the contract of position schemes, each of which compares two ways to the same numbers (trial.py)."""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from poslab.attention import scheme_attention
from poslab.config.schemes import node_of
from poslab.contract.hooks import watched
from poslab.contract.trial import (
    NEAR,
    RISING,
    SIZES,
    SYMBOLS,
    Check,
    Difference,
    Differs,
    NotTried,
    beyond_window,
    finite,
    model_and_tokens,
    random_tokens,
    small_model,
)
from poslab.errors import SettingError, blamed_on, described
from poslab.evaluation.pictures import sample_pairs
from poslab.hf.export import export
from poslab.model.architectures import hf_equivalent
from poslab.model.cache import KeyValueCache
from poslab.model.decoder import GPT
from poslab.model.memory import MemoryGPT
from poslab.positions import Curves, HeadInputs, Matrix, ModelShape, PositionScheme
from poslab.positions.base import Tables
from poslab.processors import largest_tensor
from poslab.runs.checkpoint import Checkpoint, load_checkpoint
from poslab.runs.checkpoint_files import save_weights
from poslab.runs.code import fingerprints


@torch.no_grad()
def check_hooks(scheme: PositionScheme, **sizes: Any) -> Iterator[Difference]:
    """Run a model whose hooks are watched, in float32 and float64, evaluated and trained; there are no differences."""
    yield from ()
    for dtype in (torch.float32, torch.float64):
        model = small_model(scheme, **sizes).to(dtype)
        model.position.scheme = watched(scheme, model.shape)
        others = (2, model.shape.num_heads, model.shape.head_dim, model.shape.num_layers)
        longest = min(model.shape.context_length, 12)
        length = next((n for n in range(longest, 0, -1) if n not in others), longest)  # so that axes can't be confused
        model(random_tokens(length))
        model.train()(random_tokens(length))


@torch.no_grad()
def check_pictures(scheme: PositionScheme, **sizes: Any) -> Iterator[Difference]:
    """Draw all pictures, as training would fail at its first validation."""
    model = small_model(scheme, **sizes)
    with blamed_on("pos", scheme, "warnings"):
        scheme.warnings(model.shape)
    with blamed_on("pos", scheme, "pictures"):
        pictures: dict[str, Any] = dict(model.position.pictures())
    for name, picture in pictures.items():
        if not isinstance(picture, Curves | Matrix):
            problem = f"{name} must be Curves or a Matrix, not {described(picture)}"
            raise SettingError("pos", f"{type(scheme).__name__}.pictures", problem)
        lines = picture.lines.values() if isinstance(picture, Curves) else [picture.values]
        yield from (finite(f"picture {name}", values) for values in lines)
    with blamed_on("pos", scheme, "explain"):
        model.position.explanations(sample_pairs(model, random_tokens(min(model.shape.context_length, 7))[0]))


def check_formula(scheme: PositionScheme, **_: Any) -> Iterator[Difference]:
    """Compare attention, by two kernels, with the softmax of `reference_score`, in every layer."""
    if not has_formula(scheme):
        raise NotTried("it has no reference_score")
    small_model(scheme, context_length=22, num_layers=2, num_heads=3)  # which it may refuse
    length, short = beyond_window(scheme, 8), list(range(8))
    wide = list(range(min(length, scheme.max_length(ModelShape(length, 24, 2, 3)) or length)))
    texts = ((True, short, short), (False, short, short), (True, [0, 1, 2, 5, 8, 9, 13, 21], short))
    # Of a text that is longer than the window, those queries from which it hides most.
    for causal, positions, rows in (*texts, (True, wide, wide[-1:]), (False, wide, wide[:1])):
        count, shape = len(positions), ModelShape(positions[-1] + 1, 24, 2, 3, causal)
        tables = {name: (x + 0.5 * torch.randn_like(x)).double() for name, x in scheme.tables(shape).items()}
        q, k, values = torch.randn(3, 1, 3, count, 8, dtype=torch.float64)  # (B, H, T, Dh)
        x = torch.randn(1, count, 24, dtype=torch.float64)
        how: dict[str, Any] = {"x": x, "num_layers": 2, "positions": torch.tensor(positions), "causal": causal}
        seen = [[j <= i or not causal for j in range(count)] for i in range(count)]
        text = f"{count} tokens" if positions is wide else f"positions {positions}"
        for layer in range(2):
            inputs = HeadInputs(q[0], k[0], x[0], positions, seen, shape, layer, head=0)
            expected = _weights(scheme, tables, inputs, rows) @ values[0]
            for backend in ("reference", "blockwise"):
                how |= {"layer": layer, "backend": backend}
                # Less what a table adds to the values themselves.
                out, nothing = (scheme_attention(scheme, tables, q, k, v, **how) for v in (values, 0 * values))
                what = f"attention over {text}{'' if causal else ', not causal'}, layer {layer} ({backend})"
                yield what, (out - nothing)[0, :, rows], expected, 1e-7
    if any(map(scheme.overrides, ("embed", "mix"))) and not scheme.overrides("reference_score"):
        raise NotTried("scores are plain ones, as they should be; `embed` and `mix` have no formula here")


def has_formula(scheme: PositionScheme) -> bool:
    """Return whether the scheme has a scalar formula for its scores: a foreign one may have none."""
    hooks = ("rotate", "query", "key", "query_scale", "relative", "score_mod", "key_bias")
    has_reference = scheme.overrides("reference_score") or scheme.overrides("reference_null")
    return has_reference or not any(map(scheme.overrides, hooks))


def _weights(scheme: PositionScheme, tables: Tables, text: HeadInputs, rows: Sequence[int]) -> Tensor:
    """Return the weights of all heads and of the queries `rows`, (H, rows, T), pair by pair."""
    weights = torch.zeros(text.shape.num_heads, len(rows), len(text.positions), dtype=torch.float64)
    for head, (row, i) in product(range(len(weights)), enumerate(rows)):
        at_head, keys = replace(text, head=head), [j for j, seen in enumerate(text.seen[i]) if seen]
        scores = [scheme.reference_score(tables, at_head, i, j) for j in keys]
        null = scheme.reference_null(tables, at_head, i)
        scores += [] if null is None else [null]
        weights[head, row, keys] = torch.tensor(scores, dtype=torch.float64).softmax(0)[: len(keys)]
    return weights


def check_causal(scheme: PositionScheme, **sizes: Any) -> Iterator[Difference]:
    """Compare logits before a token with those before another one."""
    model, tokens = model_and_tokens(scheme, sizes)
    kept = max(1, model.shape.context_length - 10)
    changed = torch.cat([tokens[:, :kept], (tokens[:, kept:] + 1) % len(SYMBOLS)], dim=1)
    yield "logits before a changed token", model(changed)[:, :kept], model(tokens)[:, :kept], 1e-9


def check_kernels(scheme: PositionScheme, **block: Any) -> Iterator[Difference]:
    """Compare logits and gradients of the kernels that training takes with those of the dense formula."""
    length = beyond_window(scheme, 150)
    for causal in (True, False):
        sizes, tokens = {"context_length": length, "causal": causal, **block}, random_tokens(length)
        exact = _logits_and_gradients(small_model(scheme, attention_backend="reference", **sizes), tokens)
        fast = _logits_and_gradients(small_model(scheme, **sizes), tokens)
        for name, expected in exact.items():
            yield f"{'causal' if causal else 'not causal'}, {name}", fast[name], expected, NEAR


def _logits_and_gradients(model: GPT, tokens: Tensor) -> dict[str, Tensor]:
    logits = model(tokens)
    logits.logsumexp(-1).sum().backward()
    gradients = {f"gradient of {name}": parameter.grad for name, parameter in model.named_parameters()}
    if (missing := next((name for name, gradient in gradients.items() if gradient is None), None)) is not None:
        raise Differs(f"table {missing.rpartition('.')[2]} gets no gradient, so that it would stay as it is")
    return {"logits": logits.detach(), **gradients}


def check_device(scheme: PositionScheme, **block: Any) -> Iterator[Difference]:
    """Compare logits and gradients on CUDA, in float32, with those on the CPU.

    Without CUDA, a model on "meta" still tells whether all tensors are made on the model's device.
    """
    tokens = random_tokens(SIZES["context_length"])
    try:
        small_model(scheme, attention_backend="reference", **block).to("meta")(tokens.to("meta"))
    except RuntimeError as error:
        if "meta" not in str(error):
            raise
        raise Differs(
            "a tensor is made on the CPU: make it where the tables or the tokens are, as with device=table.device"
        ) from error
    if not torch.cuda.is_available():
        raise NotTried("there is no CUDA here; all tensors are made on the model's device, as they must")
    on_cuda = _logits_and_gradients(small_model(scheme, **block).float().cuda(), tokens.cuda())
    for name, expected in _logits_and_gradients(small_model(scheme, **block), tokens).items():
        yield name, on_cuda[name].cpu().double(), expected, 1e-2


def check_bfloat16(scheme: PositionScheme, **block: Any) -> Iterator[Difference]:
    """Compare logits under bfloat16 autocast with those of float32."""
    model, tokens = small_model(scheme, **block).float(), random_tokens(40)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = model(tokens).float()
    yield "logits", rounded, model(tokens), 0.05
    rounded.square().mean().backward()
    yield from (finite(f"gradient of {name}", p.grad) for name, p in model.named_parameters() if p.grad is not None)


def check_cache(scheme: PositionScheme, **sizes: Any) -> Iterator[Difference]:
    """Compare logits of a text that comes in parts, alone, with those of the full pass beside another text."""
    model, tokens = model_and_tokens(scheme, sizes, least=40)
    length, expected = model.shape.context_length, model(tokens)[:1]
    single, cuts = range(max(0, length - 40), length), {3, 4, length - 16, length - 15} & {*range(length)}
    for edges in (single, cuts):
        sizes_of_pieces = [end - begin for begin, end in pairwise(sorted({0, *edges, length}))]
        cache = KeyValueCache()
        in_pieces = torch.cat([model(piece, cache) for piece in tokens[:1].split(sizes_of_pieces, dim=1)], dim=1)
        yield f"logits of parts of {', '.join(map(str, sizes_of_pieces[:3]))}, ... tokens", in_pieces, expected, NEAR


def check_positions(scheme: PositionScheme, **block: Any) -> Iterator[Difference]:
    """Compare rows that are given positions of their own with each alone, and with a cache that reads them."""
    model, tokens = small_model(scheme, **block), random_tokens(10)
    together, cache = model(tokens, positions=RISING), KeyValueCache()
    alone = [model(row[None], positions=own)[0] for row, own in zip(tokens, RISING, strict=True)]
    yield "rows together and alone", together, torch.stack(alone), NEAR
    pieces = zip(tokens.split([4, 1, 5], 1), RISING.split([4, 1, 5], 1), strict=True)
    yield "with a cache", torch.cat([model(piece, cache, own) for piece, own in pieces], 1), together, NEAR
    if scheme.shift_invariant:
        moved = model(tokens, positions=RISING + 37)
        yield "all moved by 37 (`shift_invariant` is true)", moved, together, NEAR


@torch.no_grad()
def check_documents(scheme: PositionScheme, **block: Any) -> Iterator[Difference]:
    """Compare documents that share a row with each alone, after another one, and with a cache."""
    lengths = 7, 1, 12
    documents = torch.arange(3).repeat_interleave(torch.tensor(lengths)).expand(2, -1)
    tokens = random_tokens(documents.shape[1])
    other = torch.cat([(tokens[:, :7] + 1) % len(SYMBOLS), tokens[:, 7:]], 1)
    for causal, backend in ((True, "reference"), (True, "blockwise"), (False, "auto")):
        model = small_model(scheme, causal=causal, attention_backend=backend, **block)
        with model.position.drawing(0):
            packed, alone = model(tokens, documents=documents), [model(text) for text in tokens.split(lengths, 1)]
            beside = model(other, documents=documents)
        how = backend if causal else "not causal"
        yield f"documents of a row and alone ({how})", packed, torch.cat(alone, 1), NEAR
        yield f"a document after another one ({how})", beside[:, 7:], packed[:, 7:], 0.0
        if causal and not scheme.samples_in_evaluation:
            cache, cuts = KeyValueCache(), [4, 5, 11]
            pieces = zip(tokens.split(cuts, 1), documents.split(cuts, 1), strict=True)
            with_cache = torch.cat([model(piece, cache, documents=own) for piece, own in pieces], 1)
            yield f"documents with a cache ({how})", with_cache, packed, NEAR


def check_segments(scheme: PositionScheme, **block: Any) -> Iterator[Difference]:
    """Compare a text read in segments, with a memory that keeps all of it, with a cache and with the full pass."""
    length = beyond_window(scheme, 40)
    tokens, model = random_tokens(length), small_model(scheme, context_length=8, memory_length=length, **block)
    assert isinstance(model, MemoryGPT)
    in_segments, cache = model.hidden_in_segments(tokens)[0], model.new_cache()
    by_cache = [model.hidden(piece, cache) for piece in tokens.split([9, 1, length - 10], 1)]
    yield "segments of 8, with a cache", torch.cat(by_cache, 1), in_segments, NEAR
    if not (scheme.overrides("mix") or scheme.overrides("embed")):  # which may look back, in a segment only within it
        yield "segments of 8, in one pass", in_segments, model.hidden(tokens), NEAR


def check_grouped(scheme: PositionScheme, **block: Any) -> Iterator[Difference]:
    """Compare a model whose queries share keys and values with one that has a copy of them for each head."""
    sizes: dict[str, Any] = {"num_heads": 4, "context_length": 40} | block
    grouped = small_model(scheme, **sizes | {"num_kv_heads": 2})
    whole, tokens = (
        small_model(scheme, **sizes),
        random_tokens(40),
    )
    weights = grouped.state_dict()
    for name, weight in weights.items():
        if ".query_key_value." in name:
            q, *kv = weight.unflatten(0, (8, -1)).split([4, 2, 2])
            weights[name] = torch.cat([q, *(x.repeat_interleave(2, 0) for x in kv)]).flatten(0, 1)
    whole.load_state_dict(weights)
    expected, cache = whole(tokens), KeyValueCache()
    yield "heads that share keys and values", grouped(tokens), expected, NEAR
    yield "with a cache", torch.cat([grouped(part, cache) for part in tokens.split([30, 1, 9], 1)], 1), expected, NEAR


def check_files(scheme: PositionScheme, **block: Any) -> Iterator[Difference]:
    """Compare the model with itself, saved and loaded."""
    with tempfile.TemporaryDirectory() as folder:
        loaded, tokens, expected = _saved_and_loaded(scheme, folder, block)
    yield "saved and loaded", loaded.model(tokens, positions=loaded.model.position.text_positions(40)), expected, 0.0


def check_export(scheme: PositionScheme, **block: Any) -> Iterator[Difference]:
    """Compare the model with itself, exported and loaded by transformers."""
    try:
        import transformers
    except ImportError:
        raise NotTried("transformers is not installed") from None
    from poslab.hf.modeling_poslab import PoslabForCausalLM

    transformers.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        loaded, tokens, expected = _saved_and_loaded(scheme, folder, block)
        export(loaded, exported := Path(folder) / "exported")
        model: Any
        if hf_equivalent(loaded.model) is None:
            model = PoslabForCausalLM.from_pretrained(exported, allow_code=True)
        else:
            model = transformers.AutoModelForCausalLM.from_pretrained(exported)
        yield "exported", model.eval()(tokens).logits, expected, NEAR


@torch.no_grad()
def _saved_and_loaded(scheme: PositionScheme, folder: str, block: dict[str, Any]) -> tuple[Checkpoint, Tensor, Tensor]:
    """Return a model from a file in the folder, tokens, and the logits that it had of them before it was saved."""
    sizes = SIZES | {"context_length": 40, "dropout": 0.0} | block
    model, tokens = small_model(scheme, **sizes).float(), random_tokens(40)
    config = {"pos": node_of(scheme), "model": sizes, "data": {}, "seed": 1}
    about = {"config": config, "pos": "scheme", "observed": None, "symbols": SYMBOLS, "data_sha256": ""}
    model.position.seed = 1  # of positions that are drawn
    expected = model(tokens, positions=model.position.text_positions(40))  # before others are made
    save_weights(file := Path(folder) / "weights.safetensors", model.state_dict(), about | fingerprints(scheme))
    return load_checkpoint(file, allow_code=True), tokens, expected


def check_growth(scheme: PositionScheme, **block: Any) -> Iterator[Difference]:
    """Compare the largest tensor of a training step with that of one of a quarter of the length."""
    largest = []
    for length in (384, 1536):
        model = small_model(scheme, context_length=length, embed_dim=16, num_layers=1, **block).float()
        tensor_sizes = largest_tensor()
        if tensor_sizes is None:
            raise NotTried("this version of torch doesn't show its operations")
        with tensor_sizes:
            model(random_tokens(length)).sum().backward()
        largest.append(torch.tensor(float(tensor_sizes.bytes)))
    yield "the largest tensor, of which 1 would be linear", largest[1] / largest[0] / 4, torch.tensor(1.0), 1.0


CHECKS: dict[str, Check] = {
    "hooks": check_hooks,
    "pictures": check_pictures,
    "formula of the paper": check_formula,
    "no look ahead": check_causal,
    "kernels": check_kernels,
    "device": check_device,
    "bfloat16": check_bfloat16,
    "cache": check_cache,
    "grouped queries": check_grouped,
    "given positions": check_positions,
    "packed documents": check_documents,
    "memory": check_segments,
    "files": check_files,
    "export": check_export,
    "linear memory": check_growth,
}
