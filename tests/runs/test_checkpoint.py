"""Checkpoints: what they say of themselves, the model back from them, and files that are damaged or malicious."""

import pickle
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from common import ENDING, ENDLESS, compose_config, make_scheme
from corpora import LFS_POINTER, VERDICT
from refusals import refused
from runs_to_evaluate import Malicious, make_run

from poslab.errors import SettingError
from poslab.evaluation.evaluate import evaluate
from poslab.evaluation.files import evaluate_checkpoint, own_text
from poslab.processors import largest_tensor
from poslab.runs.checkpoint import find_checkpoint, load_checkpoint
from poslab.runs.checkpoint_files import read_checkpoint
from poslab.runs.evaluation import read_evaluation
from poslab.runs.initial import initial_fields
from poslab.training.train import train


@pytest.fixture
def run(made: Callable[..., Path], tmp_path: Path) -> Path:
    """A run that a test may change."""
    return shutil.copytree(made(f"pos={ENDLESS}"), tmp_path / "run")


def content_of(run: Path) -> dict[str, Any]:
    return torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)


def test_training_leaves_a_checkpoint_that_says_everything(tmp_path: Path) -> None:
    quick = ("trainer.max_epochs=1", "trainer.max_steps=1", "trainer.limit_val_batches=1", "sample.new_tokens=0")
    lengths = ("evaluation.lengths=[16,64,1000]", "evaluation.stride=4")
    settings = (f"pos={ENDING}", "data.vocabulary=observed", "model.dropout=0.1", f"run_dir={tmp_path}/run")
    train(compose_config("experiment=smoke", "trainer=cpu", *quick, *lengths, *settings))
    (tmp_path / "run" / "checkpoints" / "best.safetensors").rename(tmp_path / "alone.safetensors")
    about = read_checkpoint(tmp_path / "alone.safetensors")["poslab"]
    assert (about["pos"], about["config"]["data"]["encoding"]) == (ENDING, "gpt2")
    assert about["data_sha256"] == "b41e41a68f0398a3154ae69e2e4c0e2694e17fe0d66730536837f1b01935b31f"
    assert (about["observed"].dtype, len(about["observed"])) == (torch.int32, 1417)
    assert about["config"]["model"]["embed_dim"] == 32

    written = read_evaluation(tmp_path / "run")
    assert written is not None
    assert [result.note for result in written.lengths] == ["", "knows 32 positions", "knows 32 positions"]
    assert written.lengths[0].stride == 4
    checkpoint = load_checkpoint(tmp_path / "alone.safetensors")
    assert evaluate_checkpoint(checkpoint, own_text(checkpoint), [16, 64, 1000], stride=4) == written


@pytest.mark.parametrize("vocabulary", ["full", "observed"])
def test_a_checkpoint_alone_is_the_model_and_its_vocabulary(vocabulary: str, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(VERDICT.read_text())
    overrides = ("data=text", f"data.path={tmp_path}/text.txt", f"data.cache_dir={tmp_path}/cache", "pos=shaw")
    folder = make_run(tmp_path / "run", *overrides, f"data.vocabulary={vocabulary}", "pos.max_distance=5")
    (tmp_path / "text.txt").unlink()
    (folder / "config.yaml").unlink()
    checkpoint = load_checkpoint(folder / "checkpoints" / "last.ckpt")
    assert (checkpoint.pos_name, checkpoint.model.pos) == ("shaw", make_scheme("shaw", max_distance=5))
    assert (checkpoint.run, checkpoint.model.training) == (None, False)
    assert checkpoint.vocabulary.name == vocabulary
    prompt = "I HAD always thought"
    assert checkpoint.vocabulary.decode(checkpoint.vocabulary.encode(prompt)) == prompt
    state = checkpoint.model.state_dict()
    assert all(torch.equal(state[k.removeprefix("model.")], v) for k, v in content_of(folder)["state_dict"].items())


@pytest.mark.parametrize("backend", ["reference", "sdpa"])
def test_whatever_it_was_trained_on_memory_stays_linear(backend: str, run: Path) -> None:
    content = content_of(run)
    content["poslab"]["config"]["model"] |= {"attention_backend": backend, "compile": True, "dropout": 0.3}
    torch.save(content, run / "checkpoints" / "last.ckpt")
    model = load_checkpoint(run / "checkpoints" / "last.ckpt").model
    with largest_tensor() as seen:
        evaluate(model, torch.randint(0, 1417, (2049,)), [2048])
    assert seen.bytes < 2048 * 2048 * 4


@pytest.mark.parametrize("hidden_in", ["zip", "old format", "bare pickle", "complete checkpoint", "safetensors"])
def test_a_malicious_pickle_runs_nothing(hidden_in: str, run: Path, tmp_path: Path) -> None:
    file, payload = run / "checkpoints" / "last.ckpt", Malicious(tmp_path / "attacked")
    if hidden_in == "bare pickle":
        file.write_bytes(pickle.dumps(payload))
    elif hidden_in == "complete checkpoint":
        torch.save(content_of(run) | {"callbacks": [payload]}, file)
    else:
        torch.save(payload, file, _use_new_zipfile_serialization=hidden_in == "zip")
    if hidden_in == "safetensors":
        file = file.rename(file.with_name("best.safetensors"))
    read = hidden_in in ("zip", "complete checkpoint")
    problem = "could run any code" if read else "not a checkpoint of poslab's, or a damaged one"
    with pytest.raises(SettingError, match=problem):
        load_checkpoint(file, allow_code=True)
    assert not (tmp_path / "attacked").exists()
    pickle.loads(pickle.dumps(payload))  # what it would have done
    assert (tmp_path / "attacked").exists()


def test_both_formats_hold_the_same(run: Path, tmp_path: Path) -> None:
    best = (run / "checkpoints" / "best.safetensors").rename(tmp_path / "a.safetensors")
    both = load_checkpoint(run / "checkpoints" / "last.ckpt"), load_checkpoint(best)
    (state, vocabulary), others = ((c.model.state_dict(), c.vocabulary.observed) for c in both)
    assert all(torch.equal(weight, others[0][name]) for name, weight in state.items())
    assert torch.equal(vocabulary, others[1])
    for name in ("pos_name", "config", "data_sha256"):
        assert getattr(both[0], name) == getattr(both[1], name)
    assert both[0].model.pos == both[1].model.pos


@pytest.mark.parametrize("seed", range(18))
def test_any_flipped_bit_is_named_or_changes_nothing(seed: int, run: Path) -> None:
    """A third of them in the header of the safetensors file, a third among the weights, a third in torch's format."""
    file = run / "checkpoints" / ("last.ckpt" if seed % 3 == 2 else "best.safetensors")
    before = load_checkpoint(file)
    content, draw = bytearray(file.read_bytes()), random.Random(seed)
    header = int.from_bytes(content[:8], "little") + 8
    content[draw.randrange(header if seed % 3 == 0 else len(content))] ^= 1 << draw.randrange(8)
    file.write_bytes(content)
    try:
        after = load_checkpoint(file)
    except SettingError:
        return
    state = after.model.state_dict()
    assert all(torch.equal(weight, state[name]) for name, weight in before.model.state_dict().items())
    assert after.model.pos == before.model.pos
    assert (after.pos_name, after.data_sha256) == (before.pos_name, before.data_sha256)


DAMAGE: dict[str, Callable[[dict[str, Any]], object]] = {
    "no description": lambda content: content.pop("poslab"),
    "no weights": lambda content: content.pop("state_dict"),
    "a weight less": lambda content: content["state_dict"].pop("model.final_norm.bias"),
    "a smaller vocabulary": lambda content: content["poslab"].update(observed=torch.arange(7)),
    "half a model": lambda content: content["poslab"]["config"]["model"].pop("embed_dim"),
    "no scheme's setting": lambda content: content["poslab"]["config"]["pos"].update(depth=3),
    "no scheme": lambda content: content["poslab"]["config"]["pos"].update(_target_="poslab.errors.UserError"),
    "nothing of poslab's": lambda content: content["poslab"]["config"]["pos"].update(_target_="poslab.nothing.There"),
}

NESTED: dict[str, Any] = {}
for _ in range(100):
    NESTED = {"_target_": "x", "of": NESTED}


def described(*path: str, **changes: Any) -> Callable[[dict[str, Any]], object]:
    """Change values of the description, or remove those that are ..., in the part of it at a path."""

    def damage(content: dict[str, Any]) -> None:
        part = content["poslab"]
        for name in path:
            part = part[name]
        part.update(changes)
        for name in [name for name, value in part.items() if value is ...]:
            del part[name]

    return damage


DAMAGE |= {
    "no settings": described(config=...),
    "text for settings": described(config="x"),
    "no name": described(pos=...),
    "no hash": described(data_sha256=None),
    "no model": described("config", model=...),
    "null for a model": described("config", model=None),
    "a list for a model": described("config", model=[1]),
    "text for a size": described("config", "model", embed_dim="x"),
    "null for a size": described("config", "model", num_layers=None),
    "no data": described("config", data=...),
    "no encoding": described("config", "data", encoding=...),
    "a number for an encoding": described("config", "data", encoding=5),
    "more layers than can be made": described("config", "model", num_layers=10**9),
    "text for a seed": described("config", seed="x"),
    "a seed below 0": described("config", seed=-1),
    "no seed": described("config", seed=...),
    "no class": described("config", "pos", _target_=...),
    "a number for a class": described("config", "pos", _target_=5),
    "nested without end": described("config", "pos", of=NESTED),
    "text for a vocabulary": described(observed="x"),
    "tokens below 0": described(observed=torch.arange(-1, 61, dtype=torch.int32)),
    "a token twice": described(observed=torch.ones(62, dtype=torch.int32)),
    "tokens beyond the encoding": described(observed=torch.arange(2**30, 2**30 + 62, dtype=torch.int32)),
    "a table for a vocabulary": described(observed=torch.arange(62, dtype=torch.int32)[:, None]),
    "numbers for symbols": described(symbols=[1, 2]),
    "text for symbols": described(symbols="abc"),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_damaged_checkpoints_are_refused_in_one_line(damage: Callable[[dict[str, Any]], object], run: Path) -> None:
    content, file = content_of(run), run / "checkpoints" / "last.ckpt"
    damage(content)
    torch.save(content, file)
    with pytest.raises(SettingError) as refusal:
        load_checkpoint(file)
    assert "\n" not in str(refusal.value)


def test_weights_of_whole_numbers_are_refused(run: Path) -> None:
    """torch would cut off what doesn't fit, as of a quantized model."""
    content, file = content_of(run), run / "checkpoints" / "last.ckpt"
    weights = content["state_dict"]
    weights["model.final_norm.bias"] = weights["model.final_norm.bias"].to(torch.int8)
    torch.save(content, file)
    with pytest.raises(SettingError, match="final_norm"):
        load_checkpoint(file)


@pytest.mark.parametrize("name", ["best.safetensors", "last.ckpt"])
def test_weights_that_are_pointers_of_git_lfs_are_called_so(name: str, run: Path) -> None:
    file = run / "checkpoints" / name
    file.write_text(LFS_POINTER)
    with pytest.raises(SettingError, match="Git LFS"):
        load_checkpoint(file)
    with pytest.raises(SettingError, match=r"^init_from=.*Git LFS"):
        initial_fields(str(file))


def test_a_folder_of_runs_is_refused_with_one_of_them(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").touch()
    with refused("ckpt", tmp_path, str(tmp_path / "second")):
        find_checkpoint(tmp_path)
