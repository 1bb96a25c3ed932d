"""Refusal of schemes whose hooks give what attention can't use: one line with the hook, its result, the right one."""

import math
from collections.abc import Callable
from dataclasses import make_dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from common import SMOKE, RunScript

from poslab import GPT
from poslab.attention import scheme_attention
from poslab.errors import SettingError
from poslab.positions import Curves, Matrix, ModelShape, PositionScheme, RelativeTerms
from poslab.positions.canon import Canon
from poslab.positions.forgetting import Forgetting
from poslab.positions.music import MusicTransformer
from poslab.positions.xpos import XPos

H, DH, L, T = 4, 6, 3, 20
SIZES = {"vocab_size": 61, "context_length": T, "embed_dim": H * DH, "num_layers": L, "num_heads": H}


def terms(**tables: torch.Tensor) -> Callable[..., RelativeTerms]:
    """Return a `relative` whose distances are 0 to 4, with right terms in the first layer."""
    return lambda self, t, shape, layer, distances: RelativeTerms(0, 4, **(tables if layer == L - 1 else {}))


nan = torch.full((H, 5), torch.nan)
MIXES = ": must map each token by itself: what it gives for one changes with others, or by chance"
OF_ANOTHER = ": must make a token of itself and the `mixed_tokens` - 1 before it, and of nothing else"
OF_TILE = "score_mod: scores of a query change with what else is in its tile, "
OF_TILE += "look at pairs with `seen` alone, and at no sizes"


def state(self, t, layer, x):  # of a right `token_state`
    return x[:, None, :, :1].expand(-1, H, -1, -1)


# Hooks with their refusals. Hooks of a layer are wrong in the last one alone.
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "int table": (
        {"tables": lambda self, shape: {"bias": torch.zeros(H, 5, dtype=torch.int64)}},
        "tables: bias must be a tensor of floating point, not (4, 5) of int64",
    ),
    "NaN": ({"tables": lambda self, shape: {"bias": nan}}, "tables: bias has values that are no numbers (NaN)"),
    "bias (R, H)": (
        {"relative": terms(bias=torch.zeros(5, H))},
        "relative: raises ValueError: bias has 4 rows, but distances 0 to 4 need 5",
    ),
    "keys of other heads": (
        {"relative": terms(keys=torch.zeros(1, 5, DH))},
        "relative: keys must be (H, R, Dh) = (4, any, 6) here, not (1, 5, 6) of float32",
    ),
    "keys of another head_dim": (
        {"relative": terms(keys=torch.zeros(5, H * DH))},
        "relative: keys must be (R, Dh) = (any, 6) here, not (5, 24) of float32",
    ),
    "whole values": (
        {"relative": terms(values=torch.zeros(5, DH, dtype=torch.int32))},
        "relative: values must be of floating point, not (5, 6) of int32",
    ),
    "NaN bias": ({"relative": terms(bias=nan)}, "relative: bias has values that are no numbers (NaN)"),
    "bare tensor": (
        {"relative": lambda self, t, shape, layer, distances: torch.zeros(H, 5)},
        "relative: must give RelativeTerms or None, not (4, 5) of float32",
    ),
    "query by how many there are": (
        {"query": lambda self, t, layer, q, positions: q * (1 + 0.1 * q.shape[2])},
        f"query{MIXES}",
    ),
    "embed": (
        {"embed": lambda self, t, x, positions: x[0]},
        "embed: its result must be (B, T, D) = (2, 3, 24) here, not (3, 24) of float32",
    ),
    "rotate": (
        {"rotate": lambda self, t, x, positions: x.transpose(1, 2)},
        "rotate: its result must be (B, H, T, Dh) = (2, 4, 3, 6) here, not (2, 3, 4, 6) of float32",
    ),
    "key": (
        {"key": lambda self, t, layer, k, positions: k if layer < L - 1 else k[:, :1]},
        "key: its result must be (B, H, T, Dh) = (2, 4, 3, 6) here, not (2, 1, 3, 6) of float32",
    ),
    "token_state": (
        {"token_state": lambda self, t, layer, x: x},
        "token_state: its result must be (B, H, T, E) = (2, 4, 3, any) here, not (2, 3, 24) of float32",
    ),
    "key with another token's state": (
        {"token_state": state, "key": lambda self, t, layer, k, positions, token_state: k + token_state.cumsum(2)},
        f"key{MIXES}",
    ),
    "key_bias": (
        {"token_state": state, "key_bias": lambda self, t, shape, layer, token_state: token_state},
        "key_bias: its result must be (B, H, N) = (2, 4, 3) here, not (2, 4, 3, 1) of float32",
    ),
    "score_mod": (
        {"score_mod": lambda self, t, layer, tile: tile.scores if layer < L - 1 else tile.scores.sum(1)},
        "score_mod: its result must be (B, H, m, n) = (2, 4, 2, 3) here, not (2, 2, 3) of float32",
    ),
    "prepare": (
        {
            "token_state": state,
            "prepare": lambda self, t, layer, keys, token_state: keys[:, :1],
            "score_mod": lambda self, t, layer, tile: tile.scores,
        },
        "prepare: its result must be (B, H, N, E) = (2, 4, 3, any) here, not (2, 1, 3, 6) of float32",
    ),
    "prepared with later keys": (
        {
            "token_state": state,
            "prepare": lambda self, t, layer, keys, token_state: token_state.flip(2).cumsum(2).flip(2),
            "score_mod": lambda self, t, layer, tile: tile.scores * tile.token_state[..., None, :, 0],
        },
        OF_TILE,
    ),
    "embed with the batch's mean": ({"embed": lambda self, t, x, positions: x + x.mean(0)}, f"embed{MIXES}"),
    "mix that looks ahead": (
        {"mixed_tokens": 2, "mix": lambda self, t, layer, x: x[:, 1:] + x[:, -1:]},
        f"mix{OF_ANOTHER}",
    ),
    "mix of more than it says": (
        {"mixed_tokens": 2, "mix": lambda self, t, layer, x: x[:, 1:] + x.cumsum(1)[:, 1:]},
        f"mix{OF_ANOTHER}",
    ),
    "mix without a number": (
        {"mix": lambda self, t, layer, x: x[:, 3:]},
        "mix: its result must be (B, T, D) = (2, 3, 24) here, not (2, 0, 24) of float32",
    ),
    "query_scale": (
        {"query_scale": lambda self, t, shape, layer, n: n},
        "query_scale: its result must be (1 or B, 1 or H, Tq) = (1, 1, 3) here, not (1, 3) of float32",
    ),
    "query_scale by other queries": (
        {"query_scale": lambda self, t, shape, layer, n: (n / n.amax())[:, None]},
        "query_scale: the factor of a query changes with what other queries see",
    ),
    "token state with another token": (
        {"token_state": lambda self, t, layer, x: x.cumsum(1)[:, None, :, :1].expand(-1, H, -1, -1)},
        f"token_state{MIXES}",
    ),
    "key_bias of the next key": (
        {"token_state": state, "key_bias": lambda self, t, shape, layer, token_state: token_state[..., 0].roll(-1, -1)},
        "key_bias: a key's bias beside that of another changes with a later token",
    ),
    "scores of the future": (
        {"score_mod": lambda self, t, layer, tile: tile.scores + tile.scores.mean(-1, keepdim=True) * tile.j},
        OF_TILE,
    ),
    "scores of other queries": (
        {"score_mod": lambda self, t, layer, tile: tile.scores - tile.scores.mean(-2, keepdim=True)},
        OF_TILE,
    ),
    "scores by how many keys there are": (
        {"score_mod": lambda self, t, layer, tile: tile.scores + math.log(tile.scores.shape[-1])},
        OF_TILE,
    ),
    "infinite scores": (
        {"score_mod": lambda self, t, layer, tile: tile.scores.masked_fill(tile.i == tile.j, -math.inf)},
        "score_mod: its result has infinite values",
    ),
    "token state in bfloat16": (
        {"token_state": lambda self, t, layer, x: x[:, None].expand(-1, H, -1, -1).bfloat16()},
        "token_state: its result must be of float32, not (2, 4, 3, 24) of bfloat16",
    ),
    "sample": (
        {"sample": lambda self, shape, length, generator: torch.arange(length + 1)},
        "sample: its result must be (T,) = (20,) here, not (21,) of int64",
    ),
    "sample of fractions where there are tables by distance": (
        {
            "relative": terms(bias=torch.zeros(H, 5)),
            "sample": lambda self, shape, length, generator: torch.arange(length) / 2,
        },
        "sample: its result must be of int64, not (20,) of float32",
    ),
    "embed by a later id": (
        {"embed": lambda self, t, x, positions, tokens: x + tokens.sum(1)[:, None, None]},
        "embed: what it gives for a token changes with the id of a later one",
    ),
    "sample falls": (
        {"sample": lambda self, shape, length, generator: torch.arange(length).flip(0)},
        "sample: must give rising positions from 0 on",
    ),
    "tables fail": ({"tables": lambda self, shape: {}["bias"]}, "tables: raises KeyError: 'bias'"),
    "check fails": ({"check": lambda self, shape: 1 / 0}, "check: raises ZeroDivisionError: division by zero"),
    "max_length": (
        {"max_length": lambda self, shape: "20"},
        "max_length: raises TypeError: '<' not supported between instances of 'str' and 'int'",
    ),
    "pictures fail": ({"pictures": lambda self, t, shape: {"a": t["bias"]}}, "pictures: raises KeyError: 'bias'"),
    "a tensor for a picture": (
        {"pictures": lambda self, t, shape: {"norm": torch.zeros(3)}},
        "pictures: norm must be Curves or a Matrix, not (3,) of float32",
    ),
    "a picture's line is too short": (
        {"pictures": lambda self, t, shape: {"norm": Curves("Norm", "x", "y", [1, 2, 3], {"all": torch.zeros(2)})}},
        "pictures: raises ValueError: line all must be (len(x),) = (3,), not (2,)",
    ),
    "a picture's matrix is a line": (
        {"pictures": lambda self, t, shape: {"norm": Matrix("Norm", "x", "y", torch.zeros(3))}},
        "pictures: raises ValueError: values must be (rows, columns), not (3,)",
    ),
    "sample goes too far": (
        {
            "max_length": lambda self, shape: T,
            "sample": lambda self, shape, length, generator: torch.arange(1, length + 1),
        },
        "sample: must give rising positions from 0 on below 20",
    ),
}


def scheme_with(hooks: dict[str, Any]) -> PositionScheme:
    scheme: PositionScheme = make_dataclass("Mine", [], bases=(PositionScheme,), namespace=hooks, frozen=True)()
    return scheme


@pytest.mark.parametrize("wrong", WRONG)
def test_refused_when_the_model_is_made(wrong: str) -> None:
    hooks, problem = WRONG[wrong]
    with pytest.raises(SettingError) as refusal:
        GPT(scheme_with(hooks), **SIZES)
    assert str(refusal.value) == f"pos=Mine.{problem}"


@pytest.mark.parametrize("wrong", ["check fails", "NaN", "key"])
def test_refused_in_a_model_of_one_s_own(wrong: str) -> None:
    hooks, problem = WRONG[wrong]
    scheme = scheme_with(hooks)
    tables = hooks.get("tables", lambda self, shape: {})(scheme, None)
    q, k, v = torch.randn(3, 1, H, 8, DH)
    with pytest.raises(SettingError) as refusal:
        scheme_attention(scheme, tables, q, k, v, x=torch.randn(1, 8, H * DH), layer=L - 1, num_layers=L)
    assert str(refusal.value) == f"pos=Mine.{problem}"


FAILING = """
from dataclasses import dataclass
from poslab.positions import PositionScheme
@dataclass(frozen=True)
class Mine(PositionScheme):
    def pictures(self, tables, shape):
        return {"bias": tables["bias"]}
"""


def test_a_hook_that_fails_is_named_with_its_line(
    run_script: RunScript, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("failing_pictures.py").write_text(FAILING)
    code, _, complaint = run_script("train", *SMOKE, "pos._target_=failing_pictures.Mine")
    assert (code, complaint) == (2, "error: pos=Mine.pictures (failing_pictures.py, line 7): raises KeyError: 'bias'\n")
    assert not Path("runs").exists() or not list(Path("runs").iterdir())


def test_arguments_of_scheme_attention_that_do_not_fit() -> None:
    gate = {"gate": torch.zeros(2, H, H * DH), "bias": torch.zeros(2, H)}
    x, (q, k, v) = torch.zeros(1, 8, H * DH), torch.zeros(3, 1, H, 8, DH)
    right: dict[str, Any] = {"scheme": Forgetting(), "tables": gate, "q": q, "k": k, "v": v, "x": x, "num_layers": 2}
    scheme_attention(**right)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"k": torch.zeros(1, H, 9, DH)}, r"k=\[1,4,9,6\]: must be as q, \[1, 4, 8, 6\]"),
        ({"x": None}, "x=null: Forgetting looks at what enters attention"),
        ({"scheme": Canon(), "x": None}, "x=null: Canon mixes what enters attention"),
        ({"tables": {}}, r"pos=Forgetting\.token_state .*: raises KeyError: 'gate'"),
        ({"positions": torch.arange(5)}, "positions=.*one for each of the 8 tokens"),
        ({"positions": torch.arange(8).expand(3, -1)}, "positions=3 rows: must be one row, or one for each of the 1"),
        *(({"dropout_p": p}, "dropout_p=.* must be at least 0 and below 1") for p in (1.0, -0.1, math.nan)),
        (
            {"scheme": XPos(), "tables": {}, "positions": torch.arange(39_997, 40_005)},
            "positions=up to 40004: this position scheme knows 32768 ",
        ),
        (
            {"scheme": MusicTransformer(), "tables": MusicTransformer().tables(ModelShape(7, H * DH, 2, H))},
            "tokens=8 long: these tables know 7 positions, no more",
        ),
    ]
    for change, problem in wrong:
        with pytest.raises(SettingError, match=rf"^{problem}"):
            scheme_attention(**(right | change))


def test_too_large_a_size_is_named(run_script: RunScript) -> None:
    code, _, complaint = run_script("train", *SMOKE, "pos=absolute", "pos.max_positions=1000000000000")
    problem = "the model does not fit into memory, and this is the largest of its sizes"
    assert (code, complaint) == (2, f"error: pos.max_positions=1000000000000: {problem}\n")


def test_trying_hooks_moves_no_generator_and_needs_no_memory() -> None:
    hooks = {"embed": lambda self, t, x, positions: x + 0 * torch.randn_like(x)}
    torch.manual_seed(1)
    GPT(None, **SIZES)
    drawn = torch.rand(3)
    torch.manual_seed(1)
    GPT(scheme_with(hooks), **SIZES)
    assert torch.equal(torch.rand(3), drawn)
    with torch.device("meta"):
        GPT(scheme_with(hooks), **SIZES)


@pytest.mark.parametrize(
    ("members", "problem"),
    [
        (
            {"score_mod": lambda self, tables, tile: tile.scores},
            r"score_mod: takes other arguments than the hook: \(self, tables, layer, tile\)",
        ),
        ({"scoring": staticmethod(lambda tables, layer, tile: tile.scores)}, r"scoring: is no hook"),
        ({"share_layer": True}, r"share_layer: is nothing .*did you mean share_layers"),
        ({"shift_invarient": False}, r"shift_invarient: is nothing .*did you mean shift_invariant"),
    ],
)
def test_names_that_only_look_like_the_contract_s(members: dict[str, Any], problem: str) -> None:
    with pytest.raises(SettingError, match=rf"^pos=Mine\.{problem}"):
        type("Mine", (PositionScheme,), members)
