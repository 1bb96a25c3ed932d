"""Configurations drawn at random: each trains a step, or is refused in one line."""

import shutil
import tempfile
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from common import FULL_CAMPAIGN, SOUND, compose_config, make_scheme
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from poslab.config.schema import Precision
from poslab.errors import UserError
from poslab.positions import PositionScheme
from poslab.positions.base import BACKENDS
from poslab.training.train import train

DRAWS = 500 if FULL_CAMPAIGN else 120
COUNTS = st.integers(-1, 6)
# Of settings of schemes, by their type.
VALUES: dict[Any, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    int: st.sampled_from([-1, 0, 1, 2, 4, 7, 16, 17, 64, 600, 6000]),
    float: st.sampled_from([-1.0, 0.0, 1e-3, 0.3, 0.5, 1.0, 1.1, 4.0, 16.0, 512.0, 1e4, 1e6]),
    str: st.sampled_from(["none", "linear", "dynamic", "yarn", "llama3", "nothing"]),
    PositionScheme: st.sampled_from([*SOUND, "nothing"]),
}
OPTIONS: dict[str, st.SearchStrategy[Any]] = {
    "model.context_length": st.sampled_from([0, 1, 2, 3, 17, 40, 128, 160, 530, 5000]),
    "model.embed_dim": st.sampled_from([0, 1, 2, 6, 12, 16, 48]),
    "model.num_layers": st.integers(0, 3),
    "model.num_heads": st.integers(0, 6),
    "model.dropout": st.sampled_from([-0.1, 0.0, 0.1, 0.9, 0.99, 1.0]),
    "model.attention_backend": st.sampled_from(BACKENDS),
    "data.vocabulary": st.sampled_from(["observed", "observed", "observed", "full"]),
    "data.batch_size": st.sampled_from([0, 1, 2, 3, 8, 1000]),
    "data.stride": st.sampled_from(["null", 0, 1, 5, 64, 10**6]),
    "data.order": st.sampled_from(["shuffled", "stream"]),
    "optim.learning_rate": st.sampled_from([-1, 0, 1e-8, 1e-3, 1.0, 1e30]),
    "optim": st.sampled_from(["adamw", "muon", "nadam", "sgd"]),
    "schedule": st.sampled_from(["constant", "cosine", "linear", "wsd"]),
    "optim.eps": st.sampled_from([0.0, 1e-8, 1e-4, "many"]),
    "schedule.warmup_share": st.sampled_from([0, 0.1, 0.999]),
    "trainer.precision": st.sampled_from(get_args(Precision)),
    "trainer.max_epochs": st.sampled_from(["null", 0, 1, 3]),
    "trainer.limit_train_batches": st.sampled_from(["null", 0, 1, 3, 0.5, 1.0, 2.0]),
    "trainer.val_check_interval": st.sampled_from(["null", 1, 2, 0.5, 1.0, 99]),
    "trainer.check_val_every_n_epoch": st.sampled_from(["null", 1, 2]),
    "trainer.accumulate_grad_batches": st.sampled_from([0, 1, 3, 50]),
    "trainer.gradient_clip_val": st.sampled_from(["null", 0, 1e-9, 1.0, -1]),
    "trainer.log_every_n_steps": COUNTS,
    "sample.new_tokens": COUNTS,
    "sample.temperature": st.sampled_from([-1, 0, 1e-30, 1, 100]),
    "evaluation.lengths": st.sampled_from(["[]", "[1]", "[0]", "[2,40,600]"]),
    "early_stopping_patience": st.sampled_from(["null", "null", 0, 1]),
    "target_loss": st.sampled_from(["null", "null", 100, 0]),
    "checkpoint_every_n_steps": st.sampled_from(["null", 0, 1, 7]),
}


@st.composite
def command_lines(draw: st.DrawFn) -> list[str]:
    """A few options away from a tiny run of one step: mostly a handful, so that many draws train."""
    scheme = draw(st.sampled_from(SOUND))
    fields = get_type_hints(type(make_scheme(scheme)))
    kinds = {name: (get_args(hint) or (hint,))[0] for name, hint in fields.items()}
    of_scheme = {f"pos.{name}": VALUES[kind] for name, kind in kinds.items() if kind in VALUES}
    known = OPTIONS | of_scheme
    chosen = draw(st.lists(st.sampled_from(sorted(known)), max_size=5, unique=True))
    return [f"pos={scheme}", *(f"{option}={draw(known[option])}" for option in chosen)]


TINY = [
    "data.vocabulary=observed", "model.context_length=16", "model.embed_dim=12", "model.num_layers=1",
    "model.num_heads=2", "trainer.max_steps=1", "trainer.limit_val_batches=1", "sample.new_tokens=1",
]  # fmt: skip


@pytest.mark.slow
def test_every_draw_trains_or_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """A loss that is no number is refused as well: the run stops."""
    ends = {"trained": 0, "refused": 0}

    @settings(max_examples=DRAWS, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(command_lines())
    def try_out(drawn: list[str]) -> None:
        folder = Path(tempfile.mkdtemp())
        options = {argument.split("=")[0] for argument in drawn}
        tiny = [argument for argument in TINY if argument.split("=")[0] not in options]
        refusal = ""
        try:
            summary = vars(train(compose_config(*tiny, *drawn, f"run_dir={folder}")))
        except UserError as error:
            refusal = str(error)
        finally:
            shutil.rmtree(folder)
            capsys.readouterr()
        ends["refused" if refusal else "trained"] += 1
        if refusal:
            assert "\n" not in refusal
            assert ": " in refusal
        else:
            assert summary["steps"] == 1

    try_out()
    print(f"campaign: {ends['trained']} configurations trained, {ends['refused']} were refused")
    assert sum(ends.values()) >= DRAWS
    assert min(ends.values()) > DRAWS // 10
