"""Benchmark: all that it compares computes the same, and its tables and files are written."""

import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch
from common import ENDING, ENDLESS, RunScript, assert_refused

from benchmarks import attention, bfloat16, entrants, generate, profile, small, step
from benchmarks.bare import BareGPT
from benchmarks.measure import Timing, peak_memory, processes, take_turns
from benchmarks.report import Table, write
from benchmarks.settings import BenchmarkConfig
from poslab import GPT
from poslab.attention import attend
from poslab.errors import require_at_least
from poslab.positions import ModelShape, PositionScheme
from poslab.positions.t5 import T5
from poslab.training.loss import language_model_loss

SHAPE = (2, 2, 40, 8)


@pytest.mark.parametrize(("library", "scale"), [("transformers", 1.0), ("x_transformers", None)])
def test_the_libraries_compute_what_ours_does(library: str, scale: float | None) -> None:
    """Their bias and ours, at equal tables; transformers runs with q = k = v and scores that aren't scaled."""
    pytest.importorskip(library)
    q, k, v = torch.randn(3, *SHAPE)
    if library == "transformers":
        k = v = q
        (table,), theirs = entrants.transformers_t5(q, k, v)
    else:
        (table,), theirs = entrants.x_transformers_t5(q, k, v)
        table = table * SHAPE[-1] ** 0.5
    terms = T5().relative({"bias": table}, ModelShape(40, 16, 1, 2), 0, range(40))
    assert torch.allclose(theirs(), attend(q, k, v, terms, scale=scale), atol=1e-5)


SMALL = entrants.Size("small, batch 2 x 8", 2, 64, 1, 64, 100, heads=2)


@contextmanager
def without_processes(names: Iterable[str], device_name: str = "cpu") -> Iterator[dict[str, Callable[..., Any]]]:
    """Entrants of this library and torch, which answer in this process."""
    yield {name: lambda function, *given: function(*given) for name in names if name.startswith(("poslab", "torch"))}


@pytest.fixture(autouse=True)
def forget_models() -> Iterator[None]:
    yield
    for function in (attention.forward_and_backward, generate.generator, step._built):
        function.cache_clear()


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (attention, bfloat16, generate, profile, step):
        monkeypatch.setattr(module, "processes", without_processes)
    for module in (attention, bfloat16, step):
        monkeypatch.setattr(module, "keep_freed_memory", lambda: None)
    monkeypatch.setattr("gc.collect", lambda: 0)  # takes most of the time


@pytest.fixture
def small_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generate, "SIZE", SMALL)


@pytest.mark.usefixtures("small_models")
def test_generation_writes_the_same_with_a_cache_and_without() -> None:
    prompt, texts = torch.arange(5)[None], []
    for name in (generate.RECOMPUTING, generate.RECOMPUTING.removesuffix(", no cache")):
        torch.manual_seed(0)
        texts.append(generate.GENERATORS[name](torch.float32)(prompt, 12))
    assert texts[0].shape == (1, 17)
    assert torch.equal(*texts)


@pytest.mark.usefixtures("small_models")
@pytest.mark.parametrize("dtype", generate.PRECISIONS.values(), ids=str)
@pytest.mark.parametrize("name", ["torch matrices alone", "transformers GPT-2", "x-transformers"])
def test_others_generate_as_many_tokens_as_are_asked_for(name: str, dtype: torch.dtype) -> None:
    pytest.importorskip(name.split()[0].replace("-", "_"))
    text = generate.GENERATORS[name](dtype)(torch.arange(5)[None], 12)
    assert text.shape == (1, 17)
    assert text[0, :5].tolist() == list(range(5))


@pytest.mark.usefixtures("in_this_process", "small_models")
def test_generation_tables() -> None:
    full, halved = generate.measure_generation(BenchmarkConfig(schemes=[ENDLESS], new_tokens=4), 1)
    assert [*full.rows] == ["torch matrices alone", f"poslab {ENDLESS}", generate.RECOMPUTING]
    assert [*halved.rows] == ["torch matrices alone", f"poslab {ENDLESS}"]
    assert all(table.rows["torch matrices alone"]["x its matrices' time"] == "1.00" for table in (full, halved))


@pytest.mark.usefixtures("in_this_process")
def test_bfloat16_is_measured_beside_float64() -> None:
    (table,) = bfloat16.measure_bfloat16(BenchmarkConfig(schemes=["t5", "shaw"]), 1, shape=(1, 2, 160, 8))
    assert [*table.rows] == [attention.FLASH, "poslab t5", "poslab shaw"]
    for cells in table.rows.values():
        assert 1e-4 < float(cells["error"]) < 1e-2
        assert 1e-4 < float(cells["of gradients"]) < 2e-2


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("tuned", [False, True])
def test_step_tables(tuned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step, "MINI", SMALL)
    monkeypatch.setattr("torch.compile", lambda function: function)
    monkeypatch.setattr(step, "products_per_second", lambda dtype: 1e9)
    config = BenchmarkConfig(schemes=[ENDLESS], rivals=["torch"], tuned=tuned)
    for table in step.measure_step(config, 1):
        rivals = [step.BARE, step.BARE + step.TUNED, step.BARE + step.COMPILED]
        assert [*table.rows] == [f"poslab {ENDLESS}", *rivals[tuned:]]
        ours = table.rows[f"poslab {ENDLESS}"]
        seconds = table.seconds[f"poslab {ENDLESS}"].median
        share = 6 * 2 * 64 * (12 * 64**2 + 100 * 64 + 64 * 64) / seconds / 1e9
        assert ours["of the matrix peak"] == f"{share:.0%}"
        assert "MB above its weights" in ours


@pytest.mark.parametrize("size", [entrants.MINI, entrants.GPT2], ids=lambda size: size.name)
def test_all_models_of_a_training_step_have_one_size(size: entrants.Size) -> None:
    """Up to the biases that x-transformers has not."""
    pytest.importorskip("transformers")
    pytest.importorskip("x_transformers")
    with torch.device("meta"):
        bare, *others = (step._rival(name, size)[0] for name in step.rivals(BenchmarkConfig()) if "," not in name)
        models = entrants.poslab_gpt("absolute", size), bare, *others
    ours, loop, transformers, x_transformers = (sum(p.numel() for p in model.parameters()) for model in models)
    assert ours == loop == transformers == pytest.approx(x_transformers, rel=0.002)


@pytest.mark.parametrize(
    "name", [next(iter(entrants.ours())), *(n for n in step.rivals(BenchmarkConfig()) if "compiled" not in n)]
)
def test_a_step_trains(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(name.partition(",")[0].split()[0].replace("-", "_"))
    kept: list[bool] = []
    monkeypatch.setattr(step, "keep_freed_memory", lambda: kept.append(True))
    model, _, optimizer = step._built(name, SMALL)
    before = next(model.parameters()).clone()
    assert step.step_seconds(name, SMALL, torch.float32) > 0
    assert not torch.equal(before, next(model.parameters()))
    tuned = name.endswith(step.TUNED) or isinstance(model, GPT)
    assert bool(kept) == tuned == bool(optimizer.param_groups[0]["fused"])


@pytest.mark.parametrize("size", small.SIZES, ids=lambda size: size.name)
def test_the_bare_loop_computes_what_ours_does(size: entrants.Size) -> None:
    bare, gpt = BareGPT(size), step._built("poslab absolute", size)[0]
    assert isinstance(gpt, GPT)
    bare.load_state_dict(dict(zip(bare.state_dict(), gpt.state_dict().values(), strict=True)))
    tokens, targets = torch.randint(size.vocabulary, (2, 3, size.length)).unbind()
    torch.testing.assert_close(bare.loss(tokens, targets), language_model_loss(gpt, tokens, targets))


@pytest.mark.usefixtures("in_this_process")
def test_attention_tables() -> None:
    config = BenchmarkConfig(schemes=[ENDLESS, ENDING], dense=True)
    tables = attention.measure_attention(config, 2, shapes=(SHAPE, (1, 2, 20, 8)), long=(1, 2, 160, 8))
    ours = {name for scheme in config.schemes for name in (f"poslab {scheme}", f"poslab {scheme}, dense")}
    ours.add("torch flash, no positions")
    assert all(set(table.rows) == ours for table in tables)
    assert tables[0].rows["torch flash, no positions"]["x flash"] == "1.00"
    assert all([*peaks] == ["T = 20", "T = 160", "grows by"] for peaks in tables[-1].rows.values())
    measured = tables[-1].rows[f"poslab {ENDING}"]
    assert "" not in (measured["T = 20"], measured["T = 160"])
    assert all(t.lower <= t.median <= t.upper for t in tables[0].seconds.values())


@pytest.mark.usefixtures("in_this_process")
def test_the_profile_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile, "_SHOWN", 200)
    size = entrants.Size("small", 1, 8, 1, 8, 50, heads=2)
    tables = profile.measure_profile(BenchmarkConfig(schemes=[ENDLESS]), 1, size)
    assert [precision in table.title for precision, table in zip(step.PRECISIONS, tables, strict=True)] == [True, True]
    products = tables[0].rows["mm 8x8 8x32"]  # of the MLP's second matrix, backwards
    assert float(products["calls"]) >= 1
    shares = [float(row["of the step"].rstrip("%")) for row in tables[0].rows.values()]
    assert sum(shares) == pytest.approx(100, abs=0.05 * len(shares))


@dataclass(frozen=True)
class Short(PositionScheme):
    """Refuses more than 100 tokens."""

    def check(self, shape):
        require_at_least(shape.context_length, limit=100)


@pytest.mark.usefixtures("in_this_process")
def test_what_a_scheme_does_not_take_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entrants, "parse_scheme", lambda name: Short())
    config = BenchmarkConfig(schemes=[ENDLESS])
    shapes = ((1, 2, 20, 8), (1, 2, 120, 8))
    short, long, memory = attention.measure_attention(config, 1, shapes=shapes, long=(1, 2, 160, 8))
    assert [*short.rows] == [attention.FLASH, f"poslab {ENDLESS}"]
    assert [*long.rows] == [attention.FLASH]
    cells = memory.rows[f"poslab {ENDLESS}"]
    assert cells["T = 20"] != ""
    assert (cells["T = 120"], cells["T = 160"]) == ("", "")


def test_libraries_run_in_processes_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    with processes(["torch a", "torch b", "no-such-library 1"]) as asks:
        assert list(asks) == ["torch a", "torch b"]
        (of_the_library,) = {ask(os.getpid) for ask in asks.values()}
        assert of_the_library != os.getpid()
        assert asks["torch a"](torch.get_num_threads) == torch.get_num_threads()
    assert "no-such-library 1 is left out: no-such-library isn't installed" in capsys.readouterr().out


def test_turns_are_taken_in_order_and_warm_ups_do_not_count() -> None:
    calls: list[str] = []

    def case(name: str, seconds: float) -> float:
        calls.append(name)
        return seconds if len(calls) > 2 else 100.0

    timings = take_turns({"a": lambda: case("a", 1.0), "b": lambda: case("b", 3.0)}, rounds=3)
    assert calls == ["a", "b"] * 4
    assert timings == {"a": Timing(1.0, 1.0, 1.0), "b": Timing(3.0, 3.0, 3.0)}


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="peak memory is read from Linux's /proc")
def test_peak_memory_sees_what_was_freed() -> None:
    peak = peak_memory(lambda: torch.ones(30_000_000).sum())
    assert peak is not None
    assert 110e6 < peak < 200e6


def test_files(tmp_path: Path) -> None:
    rows = {"ours": {"ms": "1.0", "x": "1"}, "a longer name": {"ms": "12.5", "x": "12.5"}}
    table = Table("Speed", rows, {"ours": Timing(0.001, 0.001, 0.001)})
    write(tmp_path, [table], "python scripts/benchmark.py")
    saved = json.loads((tmp_path / "benchmark.json").read_text())
    assert saved["tables"][0]["seconds"]["ours"]["median"] == 0.001
    assert f"torch {version('torch')}," in saved["machine"]
    assert "| ours | 1.0 | 1 |" in (tmp_path / "benchmark.md").read_text()
    assert table.text().splitlines()[-1] == "a longer name  12.5  12.5"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_devices(run_script: RunScript) -> None:
    assert_refused(
        run_script("benchmark", "groups=[gpt2,small]", "device=cuda"), "device=cuda: isn't for small; valid:"
    )
    assert_refused(run_script("benchmark", "groups=[gpt2]", "device=cuda"), "device=cuda: torch sees no GPU; valid")


@pytest.mark.slow
def test_script(tmp_path: Path, run_script: RunScript) -> None:
    command = ("benchmark", "groups=[startup]", "rounds=1", f"out={tmp_path}/out")
    assert run_script(*command)[::2] == (0, "")
    (table,) = json.loads((tmp_path / "out" / "benchmark.json").read_text())["tables"]
    assert table["seconds"]["--help"]["median"] > 0
    assert run_script(*command)[0] == 2  # nothing is overwritten
