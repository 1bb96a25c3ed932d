"""Mistakes planted in schemes: each is found by the part of the contract that is about it, in one readable line."""

import math
from collections.abc import Callable
from dataclasses import dataclass, make_dataclass
from functools import wraps
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from poslab import GPT
from poslab.contract import try_scheme
from poslab.contract.checks import CHECKS
from poslab.contract.trial import LONGEST_WINDOW, outcome
from poslab.errors import SettingError
from poslab.positions import Curves, Matrix, ModelShape, PositionScheme, RelativeTerms
from poslab.positions.alibi import ALiBi
from poslab.positions.layers import Entry, Layers
from poslab.positions.rope import RoPE

H, DH, L = 2, 12, 3  # sizes of the models that are tried
CHANNELS = torch.linspace(-1, 1, H * DH)  # a norm takes away what all channels share
NAN = torch.full((H, 5), torch.nan)


def mine(base: type[PositionScheme] = PositionScheme, window: int | None = None, **members: Any) -> PositionScheme:
    """Return a scheme with these members; window: the default of its setting of that name, if it has one."""
    settings: list[Any] = [] if window is None else [("window", int, window)]
    return make_dataclass("Mine", settings, bases=(base,), namespace=members, frozen=True)()


def gives(**changes: Callable[[Any], Any]) -> PositionScheme:
    """Return a scheme whose hooks give what these functions make of their (first) input."""

    def changed(hook: Any, change: Callable[[Any], Any]) -> Any:
        return wraps(hook)(lambda self, *given: change(hook(self, *given)))

    return mine(**{name: changed(getattr(PositionScheme, name), change) for name, change in changes.items()})


def terms(**tables: Tensor) -> PositionScheme:
    """Return a scheme that has tables for the distances 0 to 4 in the last layer alone."""
    return mine(relative=lambda self, t, shape, layer, ds: RelativeTerms(0, 4, **(tables if layer == L - 1 else {})))


def with_state(**hooks: Any) -> PositionScheme:
    return mine(token_state=lambda self, t, layer, x: x[:, None, :, :1].expand(-1, H, -1, -1), **hooks)


def draws(sample: Callable[[Tensor], Tensor], **members: Any) -> PositionScheme:
    return mine(sample=lambda self, shape, length, generator: sample(torch.arange(length)), **members)


steeper = mine(ALiBi, reference_score=lambda self, *given: 1.1 * ALiBi.reference_score(self, *given))


def windowed(window: int, **hooks: Any) -> PositionScheme:
    """Return a scheme whose formula doesn't have the window that its hooks have."""
    plain = PositionScheme.reference_score
    return mine(window=window, reference_score=lambda self, *given: plain(self, *given), **hooks)


def hiding_bias(self: Any, tables: object, shape: ModelShape, layer: int, distances: range) -> RelativeTerms:
    far = torch.arange(distances[0], distances[-1] + 1).abs() >= self.window
    bias = torch.zeros(shape.num_heads, len(far)).masked_fill(far, -math.inf)
    return RelativeTerms(distances[0], distances[-1], bias=bias)


WINDOWS: list[dict[str, Any]] = [
    {"relative": lambda self, t, shape, layer, ds: RelativeTerms(0, 0, window=self.window)},
    {"relative": hiding_bias},
    {"score_mod": lambda self, t, layer, x: x.scores.masked_fill((x.i - x.j).abs() >= self.window, -1e9)},
]


@dataclass(frozen=True)
class KeepsCount(PositionScheme):
    """Keeps a state: how often its tables were made."""

    made: ClassVar[list[int]] = []

    def tables(self, shape: ModelShape) -> dict[str, Tensor]:
        self.made.append(1)
        return {"table": torch.ones(1)}

    def embed(self, tables: Any, x: Tensor, positions: Tensor) -> Tensor:
        return x + tables["table"] * len(self.made) * CHANNELS


by_length = mine(embed=lambda self, t, x, p: x + (p / (p.max() + 1))[:, None].to(x.dtype) * CHANNELS)
ahead = with_state(key_bias=lambda self, t, shape, layer, token_state: token_state[..., 0].roll(-1, -1))

MISTAKES: dict[str, list[tuple[PositionScheme, str]]] = {
    "hooks": [
        (mine(tables=lambda self, shape: {}["bias"]), "tables: raises KeyError: 'bias'"),
        (mine(tables=lambda self, shape: {"a": [0]}), "tables: a must be a tensor of floating point, not list"),
        (mine(check=lambda self, shape: 1 / 0), "check: raises ZeroDivisionError: division by zero"),
        (mine(max_length=lambda self, shape: "20"), "max_length: raises TypeError: '<' not supported between"),
        (terms(bias=NAN.T), "relative: raises ValueError: bias has 2 rows, but distances 0 to 4 need 5"),
        (terms(bias=NAN), "relative: bias has values that are no numbers (NaN)"),
        (terms(keys=NAN[:, :, None]), "relative: keys must be (H, R, Dh) = (2, 5, 12) here, not (2, 5, 1) of float32"),
        (terms(keys=NAN.T.repeat(1, 12)[:5]), "relative: keys must be (R, Dh) = (5, 12) here, not (5, 24) of float32"),
        (terms(values=torch.zeros(5, DH).int()), "relative: values must be of floating point, not (5, 12) of int32"),
        (gives(relative=lambda _: NAN), "relative: must give RelativeTerms or None, not (2, 5) of float32"),
        (gives(embed=lambda x: x[0]), "embed: its result must be (B, T, D) = (2, 11, 24) here, not (11, 24) of"),
        (gives(rotate=lambda x: x.mT), "rotate: its result must be (B, H, T, Dh) = (2, 2, 11, 12) here, not (2, 2,"),
        (gives(key=lambda k: k[:, :1]), "key: its result must be (B, H, T, Dh) = (2, 2, 11, 12) here, not (2, 1, 11,"),
        (gives(query=lambda q: q.float()), "query: its result must be of float64, not (2, 2, 11, 12) of float32"),
        (gives(mix=lambda x: x[:, 3:]), "mix: its result must be (B, T, D) = (2, 11, 24) here, not (2, 8, 24) of"),
        (gives(token_state=lambda _: NAN), "token_state: its result must be (B, H, T, E) = (2, 2, 11, any) here, not"),
        (gives(query_scale=lambda _: NAN), "query_scale: its result must be (1 or B, 1 or H, Tq) = (1, 2, 11) here,"),
        (gives(score_mod=lambda x: x.sum(1)), "score_mod: its result must be (B, H, m, n) = (2, 2, 11, 11) here, not"),
        (gives(score_mod=lambda x: x / 0), "score_mod: its result has "),
        (with_state(key_bias=lambda self, t, shape, layer, token_state: token_state), "key_bias: its result must be"),
        (
            with_state(
                prepare=lambda self, t, layer, keys, token_state: keys[:, :1],
                score_mod=lambda self, t, layer, tile: tile.scores,
            ),
            "prepare: its result must be (B, H, N, E) = (2, 2, 11, any) here, not (2, 1, 11, 12) of float32",
        ),
        (draws(lambda p: p[:-1]), "sample: its result must be (T,) = (11,) here, not (10,) of int64"),
        (draws(lambda p: p / 2, relative=WINDOWS[1]["relative"], window=3), "sample: its result must be of int64, not"),
        (draws(lambda p: p.flip(0)), "sample: must give rising positions from 0 on"),
        (draws(lambda p: p + 140, max_length=lambda self, shape: 150), "sample: must give rising positions from 0 on"),
    ],
    "pictures": [
        (mine(pictures=lambda self, t, shape: {"a": t["bias"]}), "pictures: raises KeyError: 'bias'"),
        (gives(pictures=lambda _: {"a": NAN}), "pictures: a must be Curves or a Matrix, not (2, 5) of float32"),
        (gives(pictures=lambda _: {"a": Curves("", "", "", [1], {"all": NAN})}), "pictures: raises ValueError: line"),
        (gives(pictures=lambda _: {"a": Matrix("", "", "", NAN)}), "picture a, which must be finite: off by nan"),
        (mine(warnings=lambda self, shape: [self.window]), "warnings: raises AttributeError: 'Mine' object has no"),
    ],
    "formula of the paper": [
        (steeper, "attention over"),
        (Layers((Entry(RoPE()), Entry(steeper))), f"attention over positions {[*range(8)]}, layer 1"),
        *((windowed(size, **hook), "attention over ") for size in (8, 16) for hook in WINDOWS),
        *((windowed(70, **hook), "attention over 80 tokens, layer 0 (reference): off by ") for hook in WINDOWS),
    ],
    "no look ahead": [
        (ahead, "logits before a changed token: off by "),
        (gives(embed=lambda x: x + 0.1 * x.roll(-1, 1)), "logits before a changed token: off by "),
        (gives(score_mod=lambda x: x * x.mean(-1, keepdim=True)), "logits before a changed token: off by "),
        (mine(embed=lambda self, t, x, p, tokens: x + tokens.sum(1)[:, None, None] * CHANNELS), "logits before a"),
        (
            with_state(
                prepare=lambda self, t, layer, keys, token_state: token_state.flip(2).cumsum(2).flip(2),
                score_mod=lambda self, t, layer, tile: tile.scores * tile.token_state[..., None, :, 0],
            ),
            "logits before a changed token: off by ",
        ),
    ],
    # Tokens that notice with which others they come.
    "cache": [
        (by_length, "logits of parts of 1, 1, 1, ... tokens: off by "),
        (gives(embed=lambda x: x + x.mean(0)), "logits of parts of "),
        (gives(query=lambda q: q * (1 + 0.1 * q.shape[2])), "logits of parts of "),
        (gives(score_mod=lambda x: x - x.mean(-2, keepdim=True)), "logits of parts of "),
        (mine(mixed_tokens=2, mix=lambda self, t, layer, x: x[:, 1:] + x.cumsum(1)[:, 1:]), "logits of parts of "),
        (mine(query_scale=lambda self, t, shape, layer, n: (n / n.amax())[:, None]), "logits of parts of "),
        (
            with_state(key=lambda self, t, layer, k, positions, token_state: k + token_state.cumsum(2)),
            "logits of parts of ",
        ),
    ],
    "kernels": [
        (gives(score_mod=lambda x: x * (2 if x.shape[-2] > 128 else 1)), "causal, logits: off by "),
        (mine(tables=lambda self, shape: {"unused": torch.ones(3)}), "table unused gets no gradient, so that it would"),
    ],
    "device": [(gives(embed=lambda x: x + torch.zeros(1, x.shape[1], 1)), "a tensor is made on the CPU: ")],
    "bfloat16": [(gives(rotate=lambda x: x * (2 if x.dtype == torch.bfloat16 else 1)), "logits: off by ")],
    "given positions": [
        (by_length, "rows together and alone: off by "),
        (mine(score_mod=lambda self, t, layer, tile: tile.scores * (1 + 0.1 * tile.i)), "all moved by 37"),
    ],
    "packed documents": [
        (gives(embed=lambda x: x + x.mean(1, keepdim=True)), "documents of a row and alone (reference): off by "),
        (mine(query=lambda self, t, layer, q, positions: q * (1 + 0.1 * q.shape[2])), "documents of a row and alone"),
    ],
    "memory": [(by_length, "segments of 8, with a cache: off by ")],
    "files": [(KeepsCount(), "saved and loaded: off by ")],
    "linear memory": [
        (mine(embed=lambda self, t, x, p: x + 0 * (p[:, None] - p).sum(-1, keepdim=True)), "the largest tensor, of")
    ],
}


@pytest.mark.parametrize(
    ("part", "scheme", "said"), [(part, *mistake) for part, mistakes in MISTAKES.items() for mistake in mistakes]
)
def test_a_mistake_is_found(part: str, scheme: PositionScheme, said: str) -> None:
    result, words = outcome(CHECKS[part], scheme)
    assert (result, words.removeprefix("pos=Mine.")[: len(said)]) == ("differs", said)
    assert "\n" not in words


def test_what_can_not_be_tried_is_said() -> None:
    assert outcome(CHECKS["formula of the paper"], mine(score_mod=WINDOWS[2]["score_mod"])) == (
        "not tried",
        "it has no reference_score",
    )
    for part in ("formula of the paper", "no look ahead", "kernels", "cache", "memory"):
        result, words = outcome(CHECKS[part], windowed(LONGEST_WINDOW + 1, **WINDOWS[0]))
        assert (result, words[:36]) == ("not tried", "its window of 513 keys is wider than"), part
        assert outcome(CHECKS[part], Layers((Entry(RoPE(), LONGEST_WINDOW), Entry(ALiBi()))))[0] == "ok", part
    for part in ("no look ahead", "cache"):  # as before a training, whose length is given
        assert outcome(CHECKS[part], windowed(LONGEST_WINDOW + 1, **WINDOWS[0]), context_length=40)[0] == "ok", part


SHAPE = ModelShape(context_length=256, embed_dim=24, num_layers=4, num_heads=2)


@pytest.mark.parametrize("part", ["hooks", "pictures", "no look ahead", "cache"])
def test_a_class_from_outside_is_tried_before_it_trains(part: str) -> None:
    scheme, said = MISTAKES[part][0]
    with pytest.raises(SettingError, match=rf"^pos=Mine[.:] ?(?:{part}: )?{said[:20]}".replace("[1, 1", r"\[1, 1")):
        try_scheme(scheme, SHAPE)


def test_only_a_class_from_outside_is_tried_once_and_moves_no_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = torch.random.get_rng_state()
    for scheme in (mine(), ALiBi()):
        try_scheme(scheme, SHAPE)
    assert torch.equal(torch.random.get_rng_state(), drawn)
    monkeypatch.setattr("poslab.contract.checks.CHECKS", {})  # so that trying again fails
    try_scheme(RoPE(), SHAPE)
    try_scheme(scheme, SHAPE)
    with pytest.raises(SettingError, match="raises KeyError"):
        try_scheme(mine(ALiBi), SHAPE)
    assert GPT(ahead)  # which no longer tries anything


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
