"""Losses by length and position against a loop over windows; checkpoints; what scripts/evaluate.py says and refuses."""

import json
import math
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from conftest import ALIBI, REPOSITORY, SCHEMES, RunScript, compose_config, make_scheme
from poslab import GPT
from poslab.analysis import evaluation
from poslab.analysis.attention_maps import attention_maps
from poslab.analysis.evaluation import Evaluation, evaluate, sliding_token_losses
from poslab.analysis.evaluation_files import Text, evaluate_checkpoint, own_text, read_evaluation, write_evaluation
from poslab.checkpoint import describe, find_checkpoint, load_checkpoint
from poslab.data.module import TextDataModule
from poslab.data.tokenizer import load_tokenizer
from poslab.errors import SettingError, UserError
from poslab.training import train

SCRIPT = REPOSITORY / "scripts" / "evaluate.py"
VERDICT = REPOSITORY / "data" / "the-verdict.txt"
RELATIVE = [name for name in SCHEMES if name != "absolute"]
VOCAB, CONTEXT = 23, 12


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """With tensors as small as here, a second one does nothing but wait."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@cache
def lively_model(name: str, context: int = CONTEXT, dropout: float = 0.0) -> GPT:
    """Weights so large that every place in a window has a loss of its own."""
    torch.manual_seed(1)
    model = GPT(
        make_scheme(name),
        vocab_size=VOCAB,
        context_length=context,
        embed_dim=16,
        num_layers=2,
        num_heads=2,
        dropout=dropout,
    )
    enlarge(model)
    return model.eval()


def enlarge(model: GPT) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4)


def random_text(count: int) -> Tensor:
    return torch.randint(0, VOCAB, (count,), dtype=torch.int32, generator=torch.Generator().manual_seed(count))


@torch.no_grad()
def by_windows(model: GPT, text: Tensor, length: int, stride: int) -> tuple[list[float], list[float], int]:
    """The loss of each token after the first, the mean at each place of a full window, and how many of those there are:
    one window at a time, from the definition."""
    counted: dict[int, float] = {}
    full = []
    for start in range(0, len(text), stride):
        window = text[start : start + length + 1].long()
        losses = F.cross_entropy(model(window[None, :-1])[0], window[1:], reduction="none")
        for place, loss in enumerate(losses.tolist()):
            counted.setdefault(start + 1 + place, loss)
        if len(losses) == length:
            full.append(losses)
        if len(counted) == len(text) - 1:
            break
    assert sorted(counted) == list(range(1, len(text)))
    means = torch.stack(full).mean(0).tolist() if full else []
    return [counted[i] for i in sorted(counted)], means, len(full)


def mean(values: list[float]) -> float:
    return math.fsum(values) / len(values)


# Losses


@given(
    name=st.sampled_from(RELATIVE),
    count=st.integers(2, 34),
    length=st.integers(1, 36),
    stride=st.integers(1, 36),
    batch=st.integers(1, 80),
    rows=st.integers(1, 40),
)
@example(name="t5", count=2, length=1, stride=1, batch=1, rows=1)
@example(name="t5", count=2, length=2, stride=1, batch=1, rows=1)
@example(name="shaw", count=30, length=29, stride=29, batch=4096, rows=512)  # one window, all of the text
@example(name="shaw", count=30, length=30, stride=5, batch=4096, rows=512)  # longer than the text
@example(name="t5", count=30, length=8, stride=1, batch=20, rows=7)  # two windows in a batch
@example(name="shaw", count=31, length=6, stride=6, batch=24, rows=10)
@settings(max_examples=40, deadline=None, derandomize=True)
def test_losses_by_definition(name: str, count: int, length: int, stride: int, batch: int, rows: int) -> None:
    model, text = lively_model(name), random_text(count)
    with mock.patch.multiple(evaluation, _BATCH_TOKENS=batch, _LOGIT_ROWS=rows):
        (found,) = evaluate(model, text, [length], stride).lengths
    if length > count - 1:
        assert (found.loss, found.sliding_loss, found.by_position) == (None, None, None)
        assert (found.perplexity, found.sliding_perplexity) == (None, None)
        assert found.note == f"the text has {count} tokens"
        return
    stride = min(stride, length)
    separate, _, _ = by_windows(model, text, length, length)
    sliding, by_position, windows = by_windows(model, text, length, stride)
    assert (found.length, found.stride, found.windows) == (length, stride, windows)
    assert found.loss == pytest.approx(mean(separate), abs=1e-4)
    assert found.sliding_loss == pytest.approx(mean(sliding), abs=1e-4)
    assert found.by_position == pytest.approx(by_position, abs=1e-4)
    assert found.perplexity == pytest.approx(math.exp(mean(separate)), rel=1e-4)
    assert found.sliding_perplexity == pytest.approx(math.exp(mean(sliding)), rel=1e-4)


@given(count=st.integers(2, 40), length=st.integers(1, 40), stride=st.integers(1, 40), batch=st.integers(1, 90))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_every_token_but_the_first_counts_once(count: int, length: int, stride: int, batch: int) -> None:
    """Token by token, so that a swap or a shift shows."""
    model, text, stride = lively_model("shaw"), random_text(count), min(stride, length)
    with mock.patch.object(evaluation, "_BATCH_TOKENS", batch):
        found = sliding_token_losses(model, text, length, stride).tolist()
    assert found == pytest.approx(by_windows(model, text, length, stride)[0], abs=1e-4)


@pytest.mark.parametrize("name", SCHEMES)
def test_losses_of_many_blocks(name: str) -> None:
    """At a length that takes the kernels, several windows at a time."""
    model, text = lively_model(name, context=200), random_text(901)
    found = evaluate(model, text, [200])
    separate, _, _ = by_windows(model, text, 200, 200)
    sliding, by_position, windows = by_windows(model, text, 200, 100)
    assert found.lengths[0].windows == windows == 8
    assert found.lengths[0].stride == 100
    assert found.lengths[0].loss == pytest.approx(mean(separate), abs=1e-4)
    assert found.lengths[0].sliding_loss == pytest.approx(mean(sliding), abs=1e-4)
    assert found.lengths[0].by_position == pytest.approx(by_position, abs=1e-4)
    assert found.token_losses == pytest.approx(sliding, abs=1e-4)
    assert (found.context_length, found.tokens, len(found.token_losses)) == (200, 900, 900)


@pytest.mark.parametrize("count", [2, 7, CONTEXT, CONTEXT + 1, 40])
def test_token_losses_are_those_of_the_training_length(count: int) -> None:
    model, text = lively_model("t5"), random_text(count)
    own = min(CONTEXT, count - 1)
    expected, _, _ = by_windows(model, text, own, max(1, own // 2))
    assert evaluate(model, text, []).token_losses == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("name", SCHEMES)
def test_beyond_the_training_length(name: str) -> None:
    at, beyond = evaluate(lively_model(name), random_text(100), [CONTEXT, 4 * CONTEXT]).lengths
    assert at.loss is not None
    assert at.note == ""
    if name in RELATIVE:
        assert beyond.loss is not None
        assert beyond.loss != at.loss
    else:
        assert beyond.loss is None
        assert beyond.note == f"trained to {CONTEXT}"


def test_a_length_given_twice_is_measured_once() -> None:
    found = evaluate(lively_model("t5"), random_text(20), [8, 4, 8])
    assert [result.length for result in found.lengths] == [4, 8]


def test_no_windows_overlap_by_the_whole_length() -> None:
    """A stride beyond the length would leave tokens out."""
    (result,) = evaluate(lively_model("t5"), random_text(30), [4], stride=9).lengths
    assert result.stride == 4
    assert result.sliding_loss == result.loss


def test_the_model_is_left_as_it_was() -> None:
    model, text = lively_model("shaw", dropout=0.5), random_text(60)
    expected = evaluate(model, text, [8])
    model.train()
    torch.manual_seed(5)
    state = torch.get_rng_state()
    assert evaluate(model, text, [8]) == expected  # no dropout
    assert torch.equal(torch.get_rng_state(), state)
    assert all(part.training for part in model.modules())
    assert all(parameter.grad is None for parameter in model.parameters())
    with pytest.raises(IndexError):
        evaluate(model, torch.tensor([1, 2, VOCAB]), [1])
    assert all(part.training for part in model.modules())
    model.eval()


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8])
def test_tokens_of_any_type(dtype: torch.dtype) -> None:
    text = random_text(40)
    assert evaluate(lively_model("t5"), text.to(dtype), [8]) == evaluate(lively_model("t5"), text, [8])


def test_a_model_that_diverged_has_no_perplexity_to_overflow() -> None:
    model = GPT(vocab_size=VOCAB, context_length=8, embed_dim=8, num_layers=1, num_heads=1)
    with torch.no_grad():
        model.token_embedding.weight.mul_(1e6)
    (result,) = evaluate(model, random_text(40), [8]).lengths
    assert result.loss is not None
    assert result.loss > 1000
    assert result.perplexity == math.exp(700)


# Memory


class LargestTensor(TorchDispatchMode):
    """The most bytes that one tensor has in memory; views count as what they look at."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                self.bytes = max(self.bytes, tensor.untyped_storage().nbytes())
        return result


def largest_tensor(name: str, length: int, vocab_size: int) -> int:
    sizes = {"embed_dim": 16, "num_layers": 1, "num_heads": 2, "dropout": 0.0}
    model = GPT(make_scheme(name), vocab_size=vocab_size, context_length=length, **sizes)
    with LargestTensor() as seen:
        (result,) = evaluate(model, torch.randint(0, vocab_size, (length + 1,)), [length]).lengths
    assert result.loss is not None
    return seen.bytes


@pytest.mark.parametrize("name", SCHEMES)
def test_no_tensor_is_quadratic_in_the_length(name: str) -> None:
    short, long = (largest_tensor(name, length, vocab_size=100) for length in (1024, 4096))
    assert long < 4096 * 4096  # a quarter of (T, T) floats
    assert long <= 5 * short


def test_logits_do_not_grow_with_the_length() -> None:
    short, long = (largest_tensor("t5", length, vocab_size=5000) for length in (512, 1024))
    assert short == long == 512 * 5000 * 4


MEASURE = """
import resource, sys, torch
from poslab import GPT
from poslab.analysis.evaluation import evaluate
from poslab.positions.shaw import Shaw
length = int(sys.argv[1])
model = GPT(Shaw(), vocab_size=50257, context_length=64, embed_dim=32, num_layers=1, num_heads=2, dropout=0.0)
tokens = torch.randint(0, 50257, (length + 1,), dtype=torch.int32)
evaluate(model, tokens[:1025], [1024])  # takes what doesn't depend on the length
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
evaluate(model, tokens, [length])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
@pytest.mark.parametrize("length", [4096, 16384])  # (T, V) floats would take 0.8 and 3.3 GB, (T, T) 0.07 and 1.1
def test_memory_of_the_process(length: int) -> None:
    command = [sys.executable, "-c", MEASURE, str(length)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(result.stdout) < 6 * length + 20_000  # KiB


# Checkpoints


def make_run(folder: Path, *overrides: str) -> Path:
    """A run folder as training leaves it, but of random weights."""
    config = compose_config("experiment=smoke", "data.vocabulary=observed", *overrides)
    data = TextDataModule(config.data, config.model.context_length, config.settings.seed)
    model = GPT(config.pos, vocab_size=data.vocabulary.size, **asdict(config.model))
    enlarge(model)
    (folder / "checkpoints").mkdir(parents=True)
    OmegaConf.save(OmegaConf.create(config.plain), folder / "config.yaml")
    state = {f"model.{name}": weight for name, weight in model.state_dict().items()}
    content = {"poslab": describe(config, data.corpus), "state_dict": state}
    torch.save(content, folder / "checkpoints" / "best.ckpt")
    return folder


@pytest.fixture(autouse=True, scope="module")
def tokenizer_loaded_once() -> Iterator[None]:
    once = cache(load_tokenizer)
    with mock.patch("poslab.checkpoint.load_tokenizer", once), mock.patch("poslab.data.module.load_tokenizer", once):
        yield


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("runs")
    return {name: make_run(root / name, f"pos={name}") for name in SCHEMES}


@pytest.fixture
def run(runs: dict[str, Path], tmp_path: Path) -> Path:
    """A run of T5 that a test may change."""
    return copied(runs["t5"], tmp_path / "run")


def copied(run: Path, folder: Path) -> Path:
    (folder / "checkpoints").mkdir(parents=True)
    for file in ("config.yaml", "checkpoints/best.ckpt"):
        (folder / file).write_bytes((run / file).read_bytes())
    return folder


def content_of(run: Path) -> dict[str, Any]:
    return torch.load(run / "checkpoints" / "best.ckpt", weights_only=True)


def test_training_leaves_a_checkpoint_that_says_everything(tmp_path: Path) -> None:
    quick = ("trainer.max_epochs=1", "trainer.max_steps=1", "trainer.limit_val_batches=1", "sample.new_tokens=0")
    lengths = ("evaluation.lengths=[16,64,1000]", "evaluation.stride=4")
    settings = ("pos=absolute", "data.vocabulary=observed", "model.dropout=0.1", f"run_dir={tmp_path}/run")
    train(compose_config("experiment=smoke", "trainer=cpu", *quick, *lengths, *settings))
    (tmp_path / "run" / "checkpoints" / "best.ckpt").rename(tmp_path / "alone.ckpt")
    about = torch.load(tmp_path / "alone.ckpt", weights_only=True)["poslab"]
    assert (about["pos"], about["config"]["data"]["encoding"]) == ("absolute", "gpt2")
    assert about["data_sha256"] == "b41e41a68f0398a3154ae69e2e4c0e2694e17fe0d66730536837f1b01935b31f"
    assert (about["observed"].dtype, len(about["observed"])) == (torch.int32, 1417)
    assert about["config"]["model"]["embed_dim"] == 32

    written = read_evaluation(tmp_path / "run")
    assert written is not None
    assert [result.note for result in written.lengths] == ["", "trained to 32", "trained to 32"]
    assert written.lengths[0].stride == 4
    checkpoint = load_checkpoint(tmp_path / "alone.ckpt")
    assert evaluate_checkpoint(checkpoint, own_text(checkpoint), [16, 64, 1000], stride=4) == written


@pytest.mark.parametrize("vocabulary", ["full", "observed"])
def test_a_checkpoint_alone_is_the_model_and_its_vocabulary(vocabulary: str, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(VERDICT.read_text())
    overrides = ("data=text", f"data.path={tmp_path}/text.txt", f"data.cache_dir={tmp_path}/cache", "pos=shaw")
    folder = make_run(tmp_path / "run", *overrides, f"data.vocabulary={vocabulary}", "pos.max_distance=5")
    (tmp_path / "text.txt").unlink()
    (folder / "config.yaml").unlink()
    checkpoint = load_checkpoint(folder / "checkpoints" / "best.ckpt")
    assert (checkpoint.pos_name, checkpoint.model.pos) == ("shaw", make_scheme("shaw", max_distance=5))
    assert (checkpoint.run_folder, checkpoint.model.training) == (None, False)
    assert checkpoint.vocabulary.name == vocabulary
    prompt = "I HAD always thought"
    assert checkpoint.vocabulary.decode(checkpoint.vocabulary.encode(prompt)) == prompt
    state = checkpoint.model.state_dict()
    assert all(torch.equal(state[k.removeprefix("model.")], v) for k, v in content_of(folder)["state_dict"].items())


@pytest.mark.parametrize("backend", ["flex", "reference", "sdpa"])
def test_whatever_it_was_trained_on_memory_stays_linear(backend: str, run: Path) -> None:
    content = content_of(run)
    content["poslab"]["config"]["model"] |= {"attention_backend": backend, "compile": True, "dropout": 0.3}
    torch.save(content, run / "checkpoints" / "best.ckpt")
    model = load_checkpoint(run / "checkpoints" / "best.ckpt").model
    with LargestTensor() as seen:
        evaluate(model, torch.randint(0, 1417, (2049,)), [2048])
    assert seen.bytes < 2048 * 2048 * 4


class Malicious:
    """Unpickled, it makes a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return os.mkdir, (str(self.file),)


@pytest.mark.parametrize("hidden_in", ["zip", "old format", "bare pickle", "complete checkpoint"])
def test_a_malicious_pickle_runs_nothing(hidden_in: str, run: Path, tmp_path: Path) -> None:
    file, payload = run / "checkpoints" / "best.ckpt", Malicious(tmp_path / "attacked")
    if hidden_in == "bare pickle":
        file.write_bytes(pickle.dumps(payload))
    elif hidden_in == "complete checkpoint":
        torch.save(content_of(run) | {"callbacks": [payload]}, file)
    else:
        torch.save(payload, file, _use_new_zipfile_serialization=hidden_in == "zip")
    with pytest.raises(SettingError, match="so it isn't loaded: that could run any code"):
        load_checkpoint(file, allow_code=True)
    assert not (tmp_path / "attacked").exists()
    pickle.loads(pickle.dumps(payload))  # what it would have done
    assert (tmp_path / "attacked").exists()


def without(*keys: str) -> Callable[[dict[str, Any]], None]:
    def remove(content: dict[str, Any]) -> None:
        *path, last = keys
        for key in path:
            content = content[key]
        del content[last]

    return remove


def with_value(value: Any, *keys: str) -> Callable[[dict[str, Any]], None]:
    def put(content: dict[str, Any]) -> None:
        *path, last = keys
        for key in path:
            content = content[key]
        content[last] = value

    return put


DAMAGE = {
    "no description": without("poslab"),
    "no weights": without("state_dict"),
    "a weight less": without("state_dict", "model.final_norm.bias"),
    "weights of another shape": with_value(torch.zeros(3), "state_dict", "model.final_norm.bias"),
    "weights that are none": with_value("big", "state_dict", "model.final_norm.bias"),
    "a weight too many": with_value(torch.zeros(3), "state_dict", "model.extra"),
    "weights in a list": with_value([1], "state_dict"),
    "weights without names": with_value({1: torch.zeros(3)}, "state_dict"),
    "description in a list": with_value([1], "poslab"),
    "no scheme": without("poslab", "config", "pos"),
    "no model": without("poslab", "config", "model"),
    "half a model": without("poslab", "config", "model", "embed_dim"),
    "an odd model": with_value("wide", "poslab", "config", "model", "embed_dim"),
    "another model": with_value(64, "poslab", "config", "model", "embed_dim"),
    "no data": without("poslab", "config", "data"),
    "no encoding": without("poslab", "config", "data", "encoding"),
    "unknown encoding": with_value("gpt9", "poslab", "config", "data", "encoding"),
    "no fingerprint": without("poslab", "data_sha256"),
    "no vocabulary": without("poslab", "observed"),
    "an odd vocabulary": with_value("all", "poslab", "observed"),
    "a smaller vocabulary": with_value(torch.arange(7), "poslab", "observed"),
    "no scheme's setting": with_value(3, "poslab", "config", "pos", "depth"),
    "no scheme of poslab's": with_value("poslab.errors.UserError", "poslab", "config", "pos", "_target_"),
    "nothing of poslab's": with_value("poslab.nothing.There", "poslab", "config", "pos", "_target_"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_checkpoints_are_refused_in_one_line(damage: str, run: Path) -> None:
    content, file = content_of(run), run / "checkpoints" / "best.ckpt"
    DAMAGE[damage](content)
    torch.save(content, file)
    with pytest.raises(SettingError) as refusal:
        load_checkpoint(file)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("seed", range(20))
def test_files_of_random_bytes_are_refused(seed: int, tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(seed)
    letters = b"abcIl(){}[]'.,\n0123 " if seed % 2 else bytes(range(256))
    chosen = torch.randint(0, len(letters), (seed * 10,), generator=generator).tolist()
    (tmp_path / "random.ckpt").write_bytes(bytes(letters[i] for i in chosen))
    with pytest.raises(SettingError, match=r"isn't loaded|not a checkpoint of poslab's"):
        load_checkpoint(tmp_path / "random.ckpt")


def test_best_before_last_and_a_file_as_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "checkpoints"
    folder.mkdir(parents=True)
    (folder / "last.ckpt").touch()
    assert find_checkpoint(str(tmp_path / "run")) == folder / "last.ckpt"
    (folder / "best.ckpt").touch()
    assert find_checkpoint(str(tmp_path / "run")) == folder / "best.ckpt"
    assert find_checkpoint(str(folder / "last.ckpt")) == folder / "last.ckpt"


# Files


def written(folder: Path, text: Text, *lengths: int, name: str = "t5", file: str = "evaluation.json") -> Evaluation:
    return write_evaluation(folder, text, evaluate(lively_model(name), text.tokens, lengths), file)


def test_earlier_lengths_are_kept(tmp_path: Path) -> None:
    text = Text("a text", "abc", random_text(60))
    written(tmp_path, text, 16, 4)
    before = read_evaluation(tmp_path, "abc")
    assert before is not None
    merged = written(tmp_path, text, 8, 4)
    assert [result.length for result in merged.lengths] == [4, 8, 16]
    assert merged.lengths[0] == before.lengths[0]
    assert merged.lengths[2] == before.lengths[1]
    assert read_evaluation(tmp_path) == read_evaluation(tmp_path, "abc") == merged
    assert read_evaluation(tmp_path, "another") is None
    assert sorted(path.name for path in tmp_path.glob("*.json*")) == ["evaluation.json"]
    assert json.loads((tmp_path / "evaluation.json").read_text())["text"] == "a text"


def test_other_texts_and_other_weights_are_not_mixed_in(tmp_path: Path) -> None:
    text, other = Text("a text", "abc", random_text(60)), Text("a text", "def", random_text(50))
    for second in ((other, "t5"), (text, "shaw")):
        written(tmp_path, text, 16)
        assert [result.length for result in written(tmp_path, second[0], 8, name=second[1]).lengths] == [8]


def test_the_same_length_is_measured_anew(tmp_path: Path) -> None:
    text = Text("a text", "abc", random_text(60))
    for stride in (1, 4):
        found = write_evaluation(tmp_path, text, evaluate(lively_model("t5"), text.tokens, [8], stride))
        assert [result.stride for result in found.lengths] == [stride]


@pytest.mark.parametrize("content", ["", "{}", "[1]", "null", '{"text_sha256": "abc"}', "[" * 100_000, "\x00"])
def test_foreign_files_are_replaced(content: str, tmp_path: Path) -> None:
    (tmp_path / "evaluation.json").write_text(content)
    assert read_evaluation(tmp_path) is None
    text = Text("a text", "abc", random_text(60))
    assert written(tmp_path, text, 8) == read_evaluation(tmp_path)


def test_nothing_half_is_left_where_writing_fails(tmp_path: Path) -> None:
    (tmp_path / "evaluation.json").mkdir()
    with pytest.raises(OSError, match=r"evaluation\.json"):
        written(tmp_path, Text("a text", "abc", random_text(60)), 8)
    assert [path.name for path in tmp_path.iterdir()] == ["evaluation.json"]


def scalars(folder: Path) -> dict[str, dict[int, list[float]]]:
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    found: dict[str, dict[int, list[float]]] = {}
    for tag in events.Tags()["scalars"]:
        for event in events.Scalars(tag):
            found.setdefault(tag, {}).setdefault(event.step, []).append(event.value)
    return found


def test_tensorboard_has_each_length_once(tmp_path: Path) -> None:
    text = Text("a text", "abc", random_text(60))
    written(tmp_path, text, 4, 1000)
    assert set(scalars(tmp_path)) == {"loss_by_length/non_overlapping", "loss_by_length/sliding"}
    (tmp_path / "events.out.tfevents.1.training").write_bytes(b"")
    for _ in range(2):
        found = {result.length: result for result in written(tmp_path, text, CONTEXT, 4).lengths}
    shown = scalars(tmp_path)
    assert (tmp_path / "events.out.tfevents.1.training").exists()
    assert set(shown["loss_by_length/sliding"]) == {4, CONTEXT}
    for length, values in shown["loss_by_length/non_overlapping"].items():
        assert values == [pytest.approx(found[length].loss)]
    for length, values in shown["loss_by_length/sliding"].items():
        assert values == [pytest.approx(found[length].sliding_loss)]
    by_position = found[CONTEXT].by_position
    assert by_position is not None
    assert shown["loss_by_position"] == {i: [pytest.approx(loss)] for i, loss in enumerate(by_position)}


def test_only_the_run_s_own_evaluation_goes_to_tensorboard(tmp_path: Path) -> None:
    written(tmp_path, Text("a text", "abc", random_text(60)), 4, file="evaluation-other.json")
    assert [path.name for path in tmp_path.iterdir()] == ["evaluation-other.json"]


# The script


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, run_script: RunScript, tmp_path: Path) -> RunScript:
    """scripts/evaluate.py, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return partial(run_script, "evaluate")


@pytest.mark.parametrize("name", SCHEMES)
def test_table(name: str, script: RunScript, runs: dict[str, Path], tmp_path: Path) -> None:
    folder = copied(runs[name], tmp_path / "run")
    code, output, errors = script("ckpt=run", "lengths=[16,32,128,1024]", "stride=8", "device=cpu")
    assert (code, errors) == (0, "")
    assert "validation part; at every length, all 533 tokens but the first count" in output
    rows = {cells[0]: cells[1:] for line in output.splitlines() if (cells := line.split())}
    assert f"({name}, trained to 32)" in output
    found = read_evaluation(folder)
    assert found is not None
    for result in found.lengths[:2]:
        losses = result.by_position
        assert losses is not None
        ends = [mean(losses[: result.length // 8]), mean(losses[-result.length // 8 :])]
        assert [rows[str(result.length)][i] for i in (0, 2, 4)] == [
            f"{result.loss:.4f}",
            f"{result.sliding_loss:.4f}",
            "8",
        ]
        assert rows[str(result.length)][5:] == [f"{loss:.4f}" for loss in ends]
        assert rows[str(result.length)][1] == f"{math.exp(result.loss or 0):,.1f}"
    if name in RELATIVE:
        assert rows["128"][0] == f"{found.lengths[2].loss:.4f}"
        assert rows["1024"] == ["the", "text", "has", "534", "tokens"]
    else:
        assert rows["128"] == rows["1024"] == ["trained", "to", "32"]
    assert "written     run/evaluation.json" in output


def test_usual_lengths_and_the_same_again(script: RunScript, run: Path) -> None:
    assert script(f"ckpt={run}")[0] == 0
    first = (run / "evaluation.json").read_bytes()
    found = read_evaluation(run)
    assert found is not None
    assert [(result.length, result.stride) for result in found.lengths] == [
        (8, 4),
        (16, 8),
        (32, 16),
        (64, 32),
        (128, 64),
    ]
    assert script(f"ckpt={run}")[0] == 0
    assert (run / "evaluation.json").read_bytes() == first


def test_other_texts_and_checkpoints_have_files_of_their_own(script: RunScript, run: Path, tmp_path: Path) -> None:
    (tmp_path / "my text.txt").write_text("I HAD always thought Jack Gisburn rather a cheap genius")
    best, last = run / "checkpoints" / "best.ckpt", run / "checkpoints" / "last.ckpt"
    last.write_bytes(best.read_bytes())
    (tmp_path / "moved.ckpt").write_bytes(best.read_bytes())
    cases = {
        (f"ckpt={best}",): run / "evaluation.json",
        (f"ckpt={last}",): run / "evaluation-last.json",
        (f"ckpt={run}", "data_path='my text.txt'"): run / "evaluation-my_text.txt.json",
        ("ckpt=moved.ckpt",): tmp_path / "evaluation-moved.json",
    }
    for number, (arguments, file) in enumerate(cases.items()):
        code, _, errors = script(*arguments, "lengths=[4]")
        assert (code, errors) == (0, "")
        assert file.exists()
        assert len(list(tmp_path.rglob("evaluation*.json"))) == number + 1


def test_another_text_is_tokenised_whole(script: RunScript, run: Path, tmp_path: Path) -> None:
    """A cut would make tokens of half words, which the observed vocabulary may not have."""
    text = "I HAD always thought Jack Gisburn rather a cheap genius"
    (tmp_path / "other.txt").write_text(text)
    code, output, errors = script(f"ckpt={run}", "data_path=other.txt", "lengths=[4]")
    assert (code, errors) == (0, "")
    count = len(load_checkpoint(run / "checkpoints" / "best.ckpt").vocabulary.encode(text))
    assert f"text        other.txt; at every length, all {count - 1} tokens but the first count" in output


BAD_ARGUMENTS = [
    ("lengths=[0]", "lengths=0: must be at least 1"),
    ("lengths=[64,-1]", "lengths=-1: must be at least 1"),
    ("lengths=[]", "lengths=[]: name at least one"),
    ("lengths=abc", "lengths=abc: must be "),
    ("lengths=64", "lengths=64: must be "),
    ("lengths=[1.5]", "lengths=[1.5]: must be "),
    ("lengths=[null]", "lengths=[None]: must be "),
    ("lengths=[[4]]", "lengths=[[4]]: must be "),
    ("length=[64]", "length=[64]: unknown setting; did you mean lengths?"),
    ("stride=0", "stride=0: must be at least 1"),
    ("stride=half", "stride=half: must be a whole number or null"),
    ("device=tpu", "device=tpu: unknown; did you mean cpu? valid: auto, cpu, cuda"),
    ("allow_code=perhaps", "allow_code=perhaps: must be true or false"),
    ("data_path=", "data_path=: must name a file, a folder or a glob"),
    ("data_path=missing.txt", "data_path=missing.txt: no such file, folder or glob match"),
    ("data_path=empty.txt", "data_path=empty.txt: the text is empty"),
    ("data_path=one.txt", "data_path=one.txt: has fewer than two tokens, so there is none to predict"),
    (
        "data_path=foreign.txt",
        "data_path=foreign.txt: the model knows only the 1,417 tokens of the text it was trained on",
    ),
    ("data_path=latin1.txt", "data_path=latin1.txt: latin1.txt is not UTF-8 text"),
    ("data_path=no_texts", "data_path=no_texts: no .txt file in this folder"),
    ("data_path=two_texts", "'<|endoftext|>'"),
]


@pytest.mark.parametrize(("argument", "message"), BAD_ARGUMENTS, ids=[argument for argument, _ in BAD_ARGUMENTS])
def test_bad_arguments(argument: str, message: str, script: RunScript, runs: dict[str, Path], tmp_path: Path) -> None:
    for name, text in {"empty": "", "one": "I", "foreign": "I HAD zebras", "latin1": "I HAD"}.items():
        (tmp_path / f"{name}.txt").write_text(text)
    (tmp_path / "latin1.txt").write_bytes(b"caf\xe9")
    (tmp_path / "no_texts").mkdir()
    (tmp_path / "two_texts").mkdir()
    for name in "ab":
        (tmp_path / "two_texts" / f"{name}.txt").write_text("I HAD")
    assert_refused(script(f"ckpt={runs['t5']}", argument), message)
    assert not list(runs["t5"].glob("evaluation*"))


def assert_refused(result: tuple[int, str, str], message: str) -> None:
    code, _, errors = result
    assert code == 2
    assert errors.startswith("error: ")
    assert errors.count("\n") == 1
    assert message in errors


def test_bad_checkpoints(script: RunScript, run: Path, tmp_path: Path) -> None:
    good = (run / "checkpoints" / "best.ckpt").read_bytes()
    (tmp_path / "text.ckpt").write_text("This is no checkpoint.\n")
    (tmp_path / "empty.ckpt").touch()
    (tmp_path / "cut.ckpt").write_bytes(good[: len(good) // 2])
    torch.save({"weight": torch.zeros(3)}, tmp_path / "plain.ckpt")
    torch.save(torch.zeros(3), tmp_path / "tensor.ckpt")
    (tmp_path / "pickle.ckpt").write_bytes(pickle.dumps(Malicious(tmp_path / "attacked")))
    (tmp_path / "folder" / "checkpoints").mkdir(parents=True)
    for name in ("text", "empty", "cut", "plain", "tensor", "pickle"):
        assert_refused(script(f"ckpt={name}.ckpt"), f"ckpt={name}.ckpt: ")
    for name in ("missing", "folder", "''"):
        assert_refused(script(f"ckpt={name}"), "no such file, nor a run folder with checkpoints/best.ckpt")
    assert_refused(script(), "ckpt=")
    assert not list(tmp_path.rglob("evaluation*"))
    assert not (tmp_path / "attacked").exists()


def test_text_gone_or_changed_since_training(script: RunScript, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text(VERDICT.read_text())
    overrides = ("data=text", f"data.path={text}", f"data.cache_dir={tmp_path}/cache")
    run = make_run(tmp_path / "run", *overrides)
    assert script(f"ckpt={run}", "lengths=[8]")[0] == 0
    text.write_text(VERDICT.read_text() + "More.")
    assert_refused(
        script(f"ckpt={run}"), f"{text} is not the text any more that it was trained on; name one with data_path"
    )
    text.write_bytes(b"\xff\xfe\x00")
    assert_refused(script(f"ckpt={run}"), "it was trained on can't be read")
    text.unlink()
    assert_refused(script(f"ckpt={run}"), "it was trained on can't be read")


def test_all_of_the_text_trained_on(script: RunScript, run: Path) -> None:
    """Cut in two as it was then: in one piece it has a word that is not in the observed vocabulary."""
    code, output, errors = script(f"ckpt={run}", f"data_path={VERDICT}", "lengths=[32]", "stride=32")
    assert (code, errors) == (0, "")
    assert "at every length, all 5,145 tokens but the first count" in output


def test_schemes_from_outside_are_imported_only_if_allowed(
    script: RunScript, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = "scheme_of_an_evaluation"
    (tmp_path / f"{module}.py").write_text(f"{ALIBI}\nimport pathlib\npathlib.Path('imported').touch()\n")
    with monkeypatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        run = make_run(tmp_path / "run", f"pos._target_={module}.ALiBi")
    (tmp_path / "imported").unlink()
    monkeypatch.delitem(sys.modules, module)
    assert_refused(script(f"ckpt={run}"), f"its scheme is {module}.ALiBi, which is no part of poslab; allow_code=true")
    assert not (tmp_path / "imported").exists()
    code, output, errors = script(f"ckpt={run}", "lengths=[64]", "allow_code=true")
    assert (code, errors) == (0, "")
    assert "(alibi, trained to 32)" in output
    monkeypatch.delitem(sys.modules, module)
    (tmp_path / f"{module}.py").unlink()
    assert_refused(script(f"ckpt={run}", "allow_code=true"), f"pos._target_={module}.ALiBi: can't be imported")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_cuda_without_a_gpu(script: RunScript, runs: dict[str, Path]) -> None:
    assert_refused(script(f"ckpt={runs['t5']}", "device=cuda"), "device=cuda: torch sees no GPU; valid here: auto, cpu")


def test_a_folder_that_cannot_be_written(script: RunScript, run: Path) -> None:
    (run / "evaluation.json").mkdir()
    result = script(f"ckpt={run}", "lengths=[8]")
    assert_refused(result, f"{run}/evaluation.json: can't be written: ")
    assert " length " in result[1]  # the table comes first


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root writes everywhere")
def test_a_read_only_folder(script: RunScript, run: Path) -> None:
    run.chmod(0o500)
    assert_refused(script(f"ckpt={run}", "lengths=[8]"), "can't be written: Permission denied")
    run.chmod(0o700)


@pytest.mark.slow
def test_the_script_itself(runs: dict[str, Path], tmp_path: Path) -> None:
    copied(runs["shaw"], tmp_path / "run")
    command = [sys.executable, str(SCRIPT), "ckpt=run", "lengths=[16,64]"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]
    assert len(json.loads((tmp_path / "run" / "evaluation.json").read_text())["lengths"]) == 2


# Attention maps


@pytest.mark.parametrize("name", SCHEMES)
def test_attention_maps(name: str) -> None:
    model = lively_model(name, dropout=0.5)
    tokens = random_text(CONTEXT)
    maps = attention_maps(model.train(), tokens.long())
    assert model.training
    assert maps.shape == (2, 2, CONTEXT, CONTEXT)
    assert torch.allclose(maps.sum(-1), torch.ones(2, 2, CONTEXT))
    assert maps.triu(1).abs().max() == 0
    assert torch.equal(attention_maps(model.eval(), tokens.long()), maps)
    assert not any(part._forward_pre_hooks for part in model.modules())


def test_attention_maps_leave_no_hooks_where_they_fail() -> None:
    model = lively_model("absolute")
    with pytest.raises(UserError, match="knows 12 positions"):
        attention_maps(model.train(), random_text(CONTEXT + 1).long())
    assert model.training
    assert not any(part._forward_pre_hooks for part in model.modules())
    model.eval()
