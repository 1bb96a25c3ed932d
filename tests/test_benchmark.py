"""The benchmark: that what it compares computes the same, and that its tables and files come out."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from conftest import REPOSITORY, SCHEMES
from poslab.attention import attend
from poslab.benchmark import attention, generation, rivals
from poslab.benchmark.cases import inputs
from poslab.benchmark.report import Table, write
from poslab.benchmark.timing import Timing, peak_memory, take_turns
from poslab.positions import ModelShape
from poslab.positions.shaw import Shaw
from poslab.positions.t5 import T5

SHAPE = (2, 2, 40, 8)


def test_textbook_forms_compute_what_ours_does() -> None:
    q, k, v = torch.randn(3, *SHAPE, dtype=torch.float64)
    model = ModelShape(40, 16, 1, 2)
    for scheme, textbook in ((T5(), rivals.dense_t5), (Shaw(), rivals.textbook_shaw)):
        tables = {name: table.double() for name, table in scheme.tables(model).items()}
        ours = attend(q, k, v, scheme.relative(tables, model, 0, range(40)))
        theirs = textbook(q, k, v, *(table.squeeze(0) for table in tables.values()))
        assert torch.allclose(ours, theirs, atol=1e-12)


@pytest.mark.parametrize("library", ["transformers", "x_transformers"])
def test_the_libraries_compute_what_ours_does(library: str) -> None:
    """Their bias and ours, at equal tables. transformers runs with q = k = v and scores that aren't scaled."""
    pytest.importorskip(library)
    q, k, v = (x.detach() for x in inputs(SHAPE)[:3])
    model = ModelShape(40, 16, 1, 2)
    if library == "transformers":
        run = rivals.transformers_t5(q)
        table = run.module.relative_attention_bias.weight
        terms = T5().relative({"bias": table}, model, 0, range(40))
        assert torch.allclose(run.forward(), attend(q, q, q, terms, scale=1.0), atol=1e-5)
    else:
        run = rivals.x_transformers_t5(q, k, v)
        table = run.module.relative_attention_bias.weight * run.module.scale
        terms = T5().relative({"bias": table}, model, 0, range(40))
        assert torch.allclose(run.forward(), attend(q, k, v, terms), atol=1e-5)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_generation_writes_the_same_with_a_cache_and_without(scheme: str) -> None:
    prompt, texts = torch.arange(5)[None], []
    for name in (f"poslab {scheme}", f"poslab {scheme}, no cache"):
        torch.manual_seed(0)
        texts.append(generation.OURS[name]()(prompt, 12))
    assert texts[0].shape == (1, 17)
    assert torch.equal(*texts)


@pytest.mark.parametrize(
    ("peer", "library"), [("transformers GPT-2", "transformers"), ("llms-from-scratch", "llms_from_scratch")]
)
def test_peers_generate(peer: str, library: str) -> None:
    pytest.importorskip(library)
    text = generation.PEERS[peer]()(torch.arange(5)[None], 12)
    assert text.shape == (1, 17)
    assert text[0, :5].tolist() == list(range(5))


def test_generation_table() -> None:
    timings = {name: Timing(10.0 * (1 + i), 9.0, 11.0) for i, name in enumerate(generation.OURS)}
    table = generation._table(timings | {"transformers GPT-2": Timing(40.0, 40.0, 40.0)}, ["a line"])
    assert table.rows[0] == [next(iter(generation.OURS)), "100", "10.0", "9.0 to 11.0", "1.00"]
    assert table.rows[-1][-1] == "4.00"
    assert table.notes[-1] == "a line"


@pytest.mark.slow
def test_attention_tables_have_every_scheme() -> None:
    results, tables = attention.measure_attention(2, shapes=(SHAPE, (1, 2, 20, 8)), long=(1, 2, 160, 8))
    names = {
        "flash, no positions",
        "dense t5",
        "SDPA, dense t5 bias",
        "textbook shaw",
        *(f"poslab {s}" for s in SCHEMES),
    }
    for table in tables:
        assert names <= {row[0] for row in table.rows}
        assert all(len(row) == len(table.columns) for row in table.rows)
    assert [row[3] for row in tables[0].rows if row[0] == "flash, no positions"] == ["1.00"]
    assert tables[-1].columns[-1] == "T x 8"
    assert all(t["lower"] <= t["median"] <= t["upper"] for t in results["seconds"][str(SHAPE)].values())


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
    table = Table("Speed", ["", "ms"], [["ours", "1.0"], ["a longer name", "12.5"]], ["What it means."])
    write(tmp_path, {"group": {"x": 1}}, [table], "python scripts/benchmark.py")
    saved = json.loads((tmp_path / "benchmark.json").read_text())
    assert saved["results"] == {"group": {"x": 1}}
    assert saved["machine"]["packages"]["torch"] == torch.__version__
    page = (tmp_path / "benchmark.md").read_text()
    assert "| ours | 1.0 |" in page
    assert "What it means." in page
    assert table.text().splitlines()[-1] == "a longer name  12.5"


def run_script(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(REPOSITORY / "scripts" / "benchmark.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("groups=[speed]",), "groups=speed: unknown; valid: attention, step, generate, startup, end-to-end"),
        (("groups=[]",), "groups=[]: name at least one of attention, step, generate, startup, end-to-end"),
        (("groups=step",), "groups=step: must be"),
        (("rounds=0",), "rounds=0: must be at least 1"),
        (("round=3",), "round=3: unknown setting; did you mean rounds or groups? valid: groups, rounds, out"),
    ],
)
def test_bad_input(arguments: tuple[str, ...], error: str) -> None:
    done = run_script(*arguments)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {error}")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.slow
def test_script(tmp_path: Path) -> None:
    done = run_script("groups=[step,startup]", "rounds=1", f"out={tmp_path}/out")
    assert done.returncode == 0, done.stderr
    saved = json.loads((tmp_path / "out" / "benchmark.json").read_text())
    assert {f"poslab {scheme}" for scheme in SCHEMES} <= set(saved["results"]["step"]["seconds"]["float32"])
    assert saved["results"]["startup"]["seconds"]["--help"]["median"] > 0
    assert run_script("groups=[startup]", f"out={tmp_path}/out").returncode == 2  # nothing is overwritten
