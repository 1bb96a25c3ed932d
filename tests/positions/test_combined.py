"""Two schemes at once, and positions drawn anew in training: nothing of the schemes within them is lost."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import pytest
import torch
from common import make_scheme
from foreign_schemes import TurnedByTokens
from oracles import assert_is_the_formula
from refusals import refused

from poslab import GPT
from poslab.errors import SettingError
from poslab.evaluation.losses import window_losses
from poslab.evaluation.task_metrics import proportions, score_answers
from poslab.positions import ModelShape, PositionScheme, RelativeTerms
from poslab.positions.absolute import Absolute
from poslab.positions.alibi import ALiBi
from poslab.positions.canon import Canon
from poslab.positions.combined import Combined, Wrapper, added
from poslab.positions.fire import FIRE
from poslab.positions.forgetting import Forgetting
from poslab.positions.kerple import Kerple
from poslab.positions.path import PaTH
from poslab.positions.randomized import Randomized
from poslab.positions.rope import RoPE
from poslab.positions.rope_t5 import RoPET5
from poslab.positions.scaled import Scaled
from poslab.positions.shaw import Shaw
from poslab.positions.sink import Sink
from poslab.positions.stick_breaking import StickBreaking
from poslab.positions.t5 import T5
from poslab.tasks import Examples

SHAPE = ModelShape(40, 24, 3, 2)
SIZES = {"vocab_size": 61, "context_length": 40, "embed_dim": 24, "num_layers": 3, "num_heads": 2, "dropout": 0.0}


@dataclass(frozen=True)
class TwoStates(PositionScheme):
    """Add to each key, in each of three heads, a number of its token, made of two token states of different weight."""

    def token_state(self, tables, layer, x):
        return x[:, None, :, :2].expand(-1, 3, -1, -1)

    def score_mod(self, tables, layer, pairs):
        return pairs.scores + pairs.token_state[..., None, :, 0] - 3 * pairs.token_state[..., None, :, 1]

    def reference_score(self, tables, text, i, j):
        return super().reference_score(tables, text, i, j) + text.x[j, 0] - 3 * text.x[j, 1]


PAIRS = {
    "rotation and bias": Combined(RoPE(), T5()),
    "biases of other distances": Combined(ALiBi(), T5(num_buckets=4, max_distance=3)),
    "keys and bias": Combined(Shaw(max_distance=2, values=False), Kerple()),
    "two sets of token states": Combined(Forgetting(), Forgetting(init_bias=1.0)),
    "token states of two kinds": Combined(Forgetting(), TwoStates()),
    "token states of two kinds, turned": Combined(TwoStates(), Forgetting()),
    "token states and a tile": Combined(Forgetting(), FIRE()),
    "a tile and token states": Combined(FIRE(), Forgetting()),
    "keys that see their own state": Combined(TwoStates(), TurnedByTokens()),
    "null scores of a tile": Combined(StickBreaking(), Sink(TwoStates())),
    "null scores of both": Combined(Sink(T5()), Sink(Forgetting())),
    "states prepared at once": Combined(PaTH(rank=2), Forgetting()),
    "three": Combined(Combined(Forgetting(), ALiBi()), Combined(FIRE(), Forgetting())),
    "randomised": Randomized(Combined(Forgetting(), T5()), max_position=64),
}


@pytest.mark.parametrize("pair", PAIRS)
def test_scores_are_those_of_both(pair: str) -> None:
    assert_is_the_formula(PAIRS[pair])


def test_embeddings_of_both() -> None:
    pair = Combined(Absolute(), Absolute(max_positions=50))
    tables, x, positions = pair.tables(SHAPE), torch.randn(1, 4, 24), torch.arange(4)
    assert tables.keys() == {"first_position", "second_position"}
    total = x + tables["first_position"][:4] + tables["second_position"][:4]
    assert torch.allclose(pair.embed(tables, x, positions), total)
    assert pair.max_length(SHAPE) == 40


def test_terms_of_both() -> None:
    """Tables are continued as they end; of two windows, the smaller one counts."""
    first = RelativeTerms(0, 3, bias=torch.tensor([[1.0, 2, 3, 4]]), keys=torch.randn(4, 5), window=7)
    second = RelativeTerms(
        -1, 1, bias=torch.tensor([[10.0, 20, 30], [40, 50, 60]]), values=torch.randn(2, 3, 5), window=9
    )
    terms = added(first, second)
    assert (terms.lowest, terms.highest, terms.window) == (-1, 3, 7)
    assert torch.equal(terms.bias, torch.tensor([[11.0, 21, 32, 33, 34], [41, 51, 62, 63, 64]]))
    assert torch.equal(terms.keys, first.keys[[0, 0, 1, 2, 3]])
    assert torch.equal(terms.values, second.values[:, [0, 1, 2, 2, 2]])


def test_null_scores_are_on_the_device_of_what_is_learned() -> None:
    on_another = RelativeTerms(0, 0, null=torch.zeros(2, device="meta"))
    assert added(on_another, RelativeTerms(0, 0, null=torch.zeros(2))).null.device.type == "meta"


def test_checks_of_both_by_their_names() -> None:
    with refused("second.max_distance", "16", "16"):
        Combined(RoPE(), T5(max_distance=16)).check(SHAPE)
    with refused("first.second.max_positions", "8"):
        Combined(Combined(RoPE(), Absolute(max_positions=8)), T5()).check(SHAPE)
    with refused("of.max_distance", "16", "16"):
        Randomized(T5(max_distance=16), max_position=64).check(SHAPE)
    (warning,) = RoPET5().warnings(SHAPE)
    assert warning.startswith("pos.second.num_buckets=32, pos.second.max_distance=128: a context of 40 never trains")
    (warning,) = Randomized(RoPET5(), max_position=64).warnings(SHAPE)
    assert warning.startswith("pos.of.second.num_buckets=32, ")
    assert "a context of 64 never trains" in warning


def test_only_two_schemes_that_draw_positions_warn() -> None:
    drawing = Sink(Randomized(RoPE(), max_position=64))
    assert drawing.samples_in_evaluation
    assert drawing.sample(SHAPE, 40, torch.Generator()).max() >= 40
    assert Combined(drawing, ALiBi()).warnings(SHAPE) == Combined(ALiBi(), drawing).warnings(SHAPE) == []
    (warning,) = Combined(drawing, Randomized(ALiBi(), max_position=64)).warnings(SHAPE)
    assert warning == "pos.first and pos.second both draw positions: those of pos.first are taken"


def test_what_both_share_and_picture() -> None:
    assert Combined(RoPE(), T5(share_layers=False)).share_layers is False
    assert Combined(ALiBi(), T5()).share_layers is True
    assert Combined(RoPE(), Absolute()).shift_invariant is False
    pair = Combined(T5(), Shaw())
    assert pair.pictures(pair.tables(SHAPE), SHAPE).keys() == {"first_bias", "second_keys_norm", "second_values_norm"}


def test_only_what_a_scheme_needs_is_asked_for() -> None:
    """Rotation and bias take the fast kernels; token states that end as a bias of keys need no tile."""
    assert not any(map(PAIRS["rotation and bias"].overrides, ("token_state", "score_mod", "key_bias", "sample")))
    pair = PAIRS["two sets of token states"]
    tables, x = pair.tables(SHAPE), torch.randn(1, 6, 24)
    token_state = pair.token_state(tables, 1, x)
    assert token_state.shape == (1, 2, 6, 2)
    assert pair.key_bias(tables, SHAPE, 1, token_state) is not None
    other = PAIRS["token states and a tile"]
    assert other.key_bias(other.tables(SHAPE), SHAPE, 1, token_state[..., :1]) is None


def test_a_model_draws_in_training_and_else_where_it_is_told() -> None:
    scheme = Randomized(Absolute(), max_position=60)
    drawn = [scheme.sample(SHAPE, 40, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)]
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    assert scheme.tables(SHAPE)["position"].shape == (60, 24)
    model, tokens = GPT(scheme, **SIZES).eval(), torch.randint(0, 61, (2, 40))
    assert torch.equal(model(tokens), model(tokens))
    model.train()
    assert not torch.equal(model(tokens), model(tokens))


@pytest.mark.parametrize("name", ["rope", "t5", "fire", "forgetting", "absolute"])
def test_with_no_more_positions_than_tokens_it_is_the_plain_scheme(name: str) -> None:
    tokens, losses = torch.randint(0, 61, (2, 40)), []
    for scheme in (make_scheme(name), Randomized(make_scheme(name), max_position=40)):
        torch.manual_seed(0)
        model = GPT(scheme, **SIZES | {"dropout": 0.1}).train()
        losses.append(model(tokens).square().mean())
    assert torch.equal(*losses)


@pytest.mark.parametrize("name", ["rope", "t5", "forgetting"])
@pytest.mark.parametrize("around", [Canon, partial(Scaled, bias=True)])
def test_a_wrapper_whose_tables_do_nothing_is_its_base_to_the_bit(name: str, around: Callable[..., Wrapper]) -> None:
    tokens, found = torch.randint(61, (2, 40)), []
    for scheme in (make_scheme(name), around(make_scheme(name))):
        torch.manual_seed(0)
        model = GPT(scheme, **SIZES)
        for table, values in model.position_tables.named_parameters():
            if table in ("canon", "scaled_slope", "scaled_bias"):
                torch.nn.init.constant_(values, float(table == "scaled_bias"))
        found.append(model(tokens))
    assert torch.equal(*found)


def test_more_positions_than_tokens_make_no_text_longer() -> None:
    (plain,), (randomized,) = (s.tables(SHAPE).values() for s in (Scaled(), Randomized(Scaled(), max_position=64)))
    assert torch.equal(plain, randomized)


def test_too_few_positions() -> None:
    with refused("max_position", "39", "40"):
        GPT(Randomized(RoPE(), max_position=39), **SIZES)
    model = GPT(Randomized(RoPE(), max_position=50), **SIZES)
    for mode in (True, False):
        with pytest.raises(SettingError, match=r"\b51\b.*\b50\b"):
            model.train(mode)(torch.zeros(1, 51, dtype=torch.long))
    counting = GPT(Randomized(RoPE(), max_position=50, count_in_evaluation=True), **SIZES).eval()
    assert counting(torch.zeros(1, 51, dtype=torch.long)).shape == (1, 51, 61)
    (warning,) = Randomized(RoPE(), max_position=40).warnings(SHAPE)
    assert warning == "pos.max_position=40: nothing is random for texts of 40 tokens, the longest"
    assert not Randomized(RoPE(), max_position=40).warnings(replace(SHAPE, longest_text=39))


def drawing_model(**settings: object) -> GPT:
    """Model of strong weights, so that positions matter, and with the seed of a run."""
    torch.manual_seed(0)
    model = GPT(Randomized(T5(), max_position=200, **settings), **SIZES, init_std=0.2).eval()
    torch.nn.init.normal_(model.final_norm.weight)  # or each token would say itself
    model.position.seed = 3
    return model


def test_losses_are_the_mean_over_draws_of_the_runs_seed() -> None:
    model, tokens = drawing_model(), torch.randint(61, (2, 31))
    batch = torch.arange(2), tokens[:, :-1], tokens[:, 1:]
    drawn = [model.position.evaluation_positions(30, draw) for draw in range(4)]
    assert len({tuple(positions.tolist()) for positions in drawn}) == 4
    each = torch.stack(
        [torch.nn.functional.cross_entropy(model(batch[1], positions=p).mT, batch[2], reduction="none") for p in drawn]
    )  # (4, B, T)
    assert each.mean((1, 2)).std() > 1e-3
    found = {row: loss / count for row, (loss, count) in window_losses(model, *batch).items()}
    assert found == pytest.approx(dict(enumerate(each.mean((0, 2)).tolist())), abs=1e-5)
    model.position.seed = 4
    assert window_losses(model, *batch) != pytest.approx(found, abs=1e-5)
    counting = drawing_model(count_in_evaluation=True)
    of_counting = {row: loss / count for row, (loss, count) in window_losses(counting, *batch).items()}
    counted = torch.nn.functional.cross_entropy(model(batch[1]).mT, batch[2], reduction="none")
    assert of_counting == pytest.approx(dict(enumerate(counted.mean(1).tolist())), abs=1e-5)


def test_answers_are_the_mean_over_draws() -> None:
    model = drawing_model()
    tokens = torch.randint(61, (64, 12))
    drawn = [model.position.evaluation_positions(12, draw) for draw in range(4)]
    said = [model(tokens, positions=positions).argmax(-1) for positions in drawn]
    targets = torch.full_like(tokens, -100)
    targets[:, 8:] = said[0][:, 8:]  # all right in the first draw
    found = score_answers(model, torch.arange(64), Examples(tokens, targets))
    right = torch.stack([(one == targets)[:, 8:].sum(1) for one in said]).float()  # (4, B)
    assert 0 < right[1:].mean() < 4
    assert [row.right for row in found.values()] == pytest.approx(right.mean(0).tolist())
    assert [row.exact for row in found.values()] == pytest.approx((right == 4).float().mean(0).tolist())
    assert proportions(found)["exact"] == pytest.approx((right == 4).float().mean().item())


def test_a_text_that_is_generated_has_one_draw() -> None:
    model = drawing_model()
    prompts = [[5, 3, 8, 1, 13, 2], [7, 4, 9]]
    texts = model.generate(prompts, 20, temperature=0.0)
    assert model.generate(prompts, 10, temperature=0.0) == [text[:-10] for text in texts]
    positions = model.position.evaluation_positions(SIZES["context_length"])
    for prompt, text in zip(prompts, texts, strict=True):
        logits = model(torch.tensor([text]), positions=positions[: len(text)])[0]
        assert logits.argmax(-1)[len(prompt) - 1 : -1].tolist() == text[len(prompt) :]
    far = model.generate([prompts[0]], 220, temperature=0.0)[0]  # more than there are positions
    assert len(far) == 226


@pytest.mark.parametrize("of", [Sink(), Randomized(of=Sink(learned=False))])
def test_a_wrapper_within_itself_is_refused(of: PositionScheme) -> None:
    name = type(of).__module__.rpartition(".")[2]
    with pytest.raises(SettingError, match=f"^of={name}: "):
        Sink(of=of).check(SHAPE)
