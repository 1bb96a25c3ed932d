"""Runs that begin with the weights of another: what is taken, what is refused, and how such runs are told apart."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from common import compose_config, make_scheme
from runs_to_compare import change_config, change_summary, compare_folders, runs_by_group, table_in, write_run

from poslab import GPT
from poslab.comparison.repeat import facts
from poslab.data.tokenizer import Symbols, Vocabulary, load_tokenizer
from poslab.errors import SettingError, UserError
from poslab.runs.checkpoint_files import read_checkpoint, save_weights
from poslab.runs.initial import initial_fields
from poslab.training.initial_model import init_from

SIZES = {"vocab_size": 1417, "context_length": 40, "embed_dim": 32, "num_layers": 2, "num_heads": 2}
Made = Callable[..., Path]


def vocabulary(run: Path) -> Vocabulary:
    return Vocabulary(
        load_tokenizer("gpt2"), read_checkpoint(run / "checkpoints" / "best.safetensors")["poslab"]["observed"]
    )


@pytest.mark.parametrize(
    ("scheme", "settings", "said"),
    [
        ("t5", {"scale": 2.0}, "; tables taken: bias (32, 2); new: none; left behind: none"),
        ("t5", {"num_buckets": 16}, "; tables taken: none; new: bias (16, 2); left behind: bias (32, 2)"),
        ("kerple", {}, "; tables taken: none; new: r1 (2,), r2 (2,); left behind: bias (32, 2)"),
        ("rope", {}, "; tables taken: none; new: none; left behind: bias (32, 2)"),
    ],
)
@pytest.mark.parametrize("file", ["", "checkpoints/last.ckpt"])
def test_the_trunk_is_taken_and_tables_where_they_fit(
    made: Made, scheme: str, settings: dict[str, float], said: str, file: str
) -> None:
    run = made("pos=t5")
    theirs = read_checkpoint(run / "checkpoints" / "best.safetensors")["state_dict"]
    torch.manual_seed(5)
    model = GPT(make_scheme(scheme, **settings), **SIZES)
    new = {name: table.clone() for name, table in model.position_tables.named_parameters()}
    assert init_from(model, str(run / file), vocabulary(run)).endswith(f": embedding and blocks of a t5 model{said}")
    for name, weight in model.state_dict().items():
        table = name.removeprefix("position_tables.")
        fits = table not in new or new[table].shape == theirs.get(name, torch.empty(0)).shape
        assert torch.equal(weight, theirs[name] if fits else new[table]), name


def test_what_does_not_fit_is_one_line(made: Made, tmp_path: Path) -> None:
    run = made("pos=t5")
    known = vocabulary(run)

    def refused(problem: str, given: Path = run, vocabulary: object = known, **sizes: int) -> None:
        with pytest.raises(SettingError, match=problem):
            init_from(GPT(None, **SIZES | sizes), str(given), vocabulary)

    refused(r"^model\.num_heads=1: the weights of init_from=.* need 2$", num_heads=1)
    refused(r"^model\.embed_dim=64: the weights of init_from=.* need 32$", embed_dim=64)
    of_others = r"^init_from=.*: was trained on other tokens than those of these data$"
    refused(of_others, vocabulary=Vocabulary(known.encoding, known.observed + 1))
    refused(of_others, vocabulary=Symbols(tuple(map(str, range(known.size)))))
    refused(r"^init_from=.*nowhere: no such file or folder$", given=tmp_path / "nowhere")
    refused(r"^init_from=.*: is neither a run nor a model of transformers: has no config.json$", given=tmp_path)
    content, whole = read_checkpoint(run / "checkpoints" / "best.safetensors"), tmp_path / "whole.safetensors"
    weights = {name: weight.to(torch.int8) for name, weight in content["state_dict"].items()}
    save_weights(whole, weights, content["poslab"])
    refused(r"^init_from=.*torch\.int8", given=whole)
    (tmp_path / "begun" / "checkpoints").mkdir(parents=True)
    refused(r"^init_from=.*begun: is a run without weights$", given=tmp_path / "begun")
    shutil.copytree(run, tmp_path / "begun", dirs_exist_ok=True)
    assert init_from(GPT(None, **SIZES), str(tmp_path / "beg*"), known).startswith(
        f"weights begin with those of {tmp_path}/begun/checkpoints/"
    )
    (tmp_path / "begin").mkdir()
    refused(r"^init_from=.*beg\*: must name one run, not 2: .*begin, .*begun$", given=tmp_path / "beg*")


def test_a_strangers_run_is_not_imported(made: Made, tmp_path: Path) -> None:
    run = made("pos=t5")
    content = read_checkpoint(run / "checkpoints" / "best.safetensors")
    content["poslab"]["config"]["pos"] = {"_target_": "no_such_module.Scheme"}
    save_weights(tmp_path / "theirs.safetensors", content["state_dict"], content["poslab"])
    assert "tables taken: bias (32, 2)" in init_from(
        GPT(make_scheme("t5"), **SIZES), str(tmp_path / "theirs.safetensors"), vocabulary(run)
    )
    assert initial_fields(str(tmp_path / "theirs.safetensors"))["init_group"].startswith("t5-")


def test_runs_that_begin_with_each_seeds_own_are_one_group(made: Made, tmp_path: Path) -> None:
    """Of one kind of run, and not of another; what they began with stands in the report."""
    seeds = {seed: initial_fields(str(made("pos=t5", f"seed={seed}"))) for seed in (1, 2)}
    other = initial_fields(str(made("pos=t5", "optim.learning_rate=1e-5")))
    last = initial_fields(str(made("pos=t5", "seed=1") / "checkpoints" / "last.ckpt"))
    assert len({fields["init_sha256"] for fields in (*seeds.values(), other, last)}) == 4
    assert len({fields["init_group"] for fields in (*seeds.values(), other, last)}) == 3

    def begun(place: str, seed: int, fields: dict[str, str]) -> Path:
        run = write_run(tmp_path / place, "rope", seed)
        for name, value in fields.items():
            change_config(run, name, value)
        change_summary(run, init_from=f"runs/t5-seed{seed}", init_sha256=fields["init_sha256"])
        return run

    for seed, fields in seeds.items():
        begun("own", seed, fields)
    (caveat,) = compare_folders(tmp_path / "own").caveats
    assert caveat.startswith(f"all runs began with weights of a t5 model ({fields['init_group'][3:]}): ")
    (runs,) = runs_by_group(tmp_path / "own").values()
    assert facts(runs)["weights"] == "begin with " + ", ".join(
        f"runs/t5-seed{seed} (sha256 {fields['init_sha256'][:12]})" for seed, fields in seeds.items()
    )
    begun("other", 1, other)
    with pytest.raises(UserError, match=r"init_from: .*t5 model \(\w{8}\)"):
        table_in(tmp_path)
    begun("other", 2, other)
    _, caveat = compare_folders(tmp_path / "other").caveats
    assert caveat == "runs of several seeds begin with the same weights: what others would give is not known"


def test_a_seed_in_the_path_is_that_of_the_run() -> None:
    for seed in (1, 2):
        given = compose_config(f"seed={seed}", "init_from='runs/rope-seed${seed}-*'").settings.init_from
        assert given == str(Path(f"runs/rope-seed{seed}-*").absolute())
