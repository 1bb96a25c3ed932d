"""Exports of other tools, in the form in which these tools write them."""

import gzip
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from seedstats.errors import BadTable
from seedstats.exports import read_exports

PLAIN = [("a", "1", "0.93"), ("a", "2", "0.95"), ("b", "1", "0.9"), ("b", "2", "1")]


def written(folder: Path, name: str, content: Any) -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    text = content if isinstance(content, str | bytes) else json.dumps(content)
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


def rows(table: pd.DataFrame, *columns: str) -> list[tuple[str, ...]]:
    return [*table[list(columns or ("name", "seed", "value"))].itertuples(index=False, name=None)]


COMMAS = "name,seed,value\na,1,0.93\na,2,0.95\nb,1,0.9\nb,2,1\n"
GERMAN = "name;seed;value\r\na;1;0,93\r\na;2;0,95\r\nb;1;0,9\r\nb;2;1\r\n"


@pytest.mark.parametrize(
    "content",
    [
        COMMAS,
        gzip.compress(COMMAS.encode(), mtime=0),
        COMMAS.replace(",", ";"),
        COMMAS.replace(",", ", ").replace("a,", '"a",'),
        ",name,seed,value\n0,a,1,0.93\n1,a,2,0.95\n2,b,1,0.9\n3,b,2,1\n",  # as pandas writes it with its row numbers
        GERMAN,
        b"\xef\xbb\xbf" + GERMAN.encode(),
        GERMAN.replace(";", "\t").encode("utf-16"),  # Excel's "Unicode text"
        GERMAN + ";;\r\n",
    ],
)
def test_a_csv_file_is_read_whatever_its_separator_decimals_and_encoding(tmp_path: Path, content: str | bytes) -> None:
    table = read_exports([written(tmp_path, "results.csv", content)])
    assert [*table] == ["name", "seed", "value"]
    assert rows(table) == PLAIN


def test_decimal_commas_are_those_of_columns_that_hold_only_numbers(tmp_path: Path) -> None:
    french = "name;seed;value;layers;note\na;1;1\u202f234,5;2;8,16\nb;1;-3,25E-05;4;8,16 and 32\nc;1;NaN;4;\nd;1;;4;\n"
    table = read_exports([written(tmp_path, "fr.csv", french)])
    assert table["value"].tolist() == ["1234.5", "-3.25E-05", "NaN", ""]
    assert table["note"].tolist() == ["8,16", "8,16 and 32", "", ""]
    english = "name,seed,value\na,1,0.5\n'b,2',1,0.6\n".replace("'", '"')
    assert rows(read_exports([written(tmp_path, "en.csv", english)])) == [("a", "1", "0.5"), ("b,2", "1", "0.6")]
    german = "name;seed;value;tokens\na;1;1.234,5;1\n"
    assert read_exports([written(tmp_path, "de.csv", german)])["value"].tolist() == ["1234.5"]


def test_a_parquet_file_is_a_table_of_text(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    pd.DataFrame({"name": ["a", "b"], "seed": [1, 2], "value": [0.5, None]}).to_parquet(tmp_path / "results.parquet")
    assert rows(read_exports([tmp_path / "results.parquet"])) == [("a", "1", "0.5"), ("b", "2", "")]


RUNS = """"Name","State","Notes","User","Tags","Created","Runtime","Sweep","method","lr","seed","val/loss","val/acc"
"fast-sun-4","finished","-","me","","2026-02-02T07:14:06.000Z","29","","t5","0.001","1","3.51","0.41"
"calm-sea-3","finished","-","me","","2026-02-02T07:13:37.000Z","28","","t5","0.001","2","NaN","0.4"
"blue-sky-2","crashed","-","me","","2026-02-02T07:13:03.000Z","3","","alibi","0.001","1","",""
"warm-dew-1","running","-","me","","2026-02-02T07:12:33.000Z","9","","alibi","0.001","2","5.2",""
"""


def test_columns_of_wandbs_table_of_runs_are_chosen(tmp_path: Path) -> None:
    chosen = {"name": "method", "value": "val/loss, val/acc", "settings": "lr"}
    table = read_exports([written(tmp_path, "wandb_export.csv", RUNS)], chosen)
    assert {*table} == {"name", "seed", "value", "metric", "lr", "caveat"}
    assert rows(table, "name", "seed", "metric", "value") == [
        ("t5", "1", "val/loss", "3.51"),
        ("t5", "2", "val/loss", "NaN"),
        ("alibi", "1", "val/loss", ""),
        ("alibi", "2", "val/loss", "5.2"),
        ("t5", "1", "val/acc", "0.41"),
        ("t5", "2", "val/acc", "0.4"),
        ("alibi", "1", "val/acc", ""),
        ("alibi", "2", "val/acc", ""),
    ]
    doubt = "alibi with seed 2 is running: its value may be an early one"
    assert table["caveat"].tolist() == ["", "", "", doubt, "", "", "", ""]


def test_roles_of_a_long_table_keep_their_columns_where_others_are_chosen(tmp_path: Path) -> None:
    long = "model,seed,metric,value,host\nm,1,f1,0.5,x\nm,1,em,0.4,y\n"
    table = read_exports([written(tmp_path, "long.csv", long)], {"name": "model"})
    assert rows(table, "name", "seed", "metric", "value") == [("m", "1", "f1", "0.5"), ("m", "1", "em", "0.4")]
    assert "host" not in table


def test_of_wandbs_chart_each_run_has_its_last_value(tmp_path: Path) -> None:
    head = ["Step", *(f"{run} - {name}" for run in ("big - t5-seed1", "alibi_s2") for name in ("_step", "val_loss"))]
    names = [column + end for column in head for end in (("", "__MIN", "__MAX") if column != "Step" else ("",))]
    lines = [
        [step, *([step] * 3), *([loss] * 3), *([step] * 3), *([other] * 3)]
        for step, loss, other in (("0", "9.1", "9.2"), ("100", "4.5", "4.25"), ("200", "4.125", ""))
    ]
    text = "\n".join(",".join(f'"{cell}"' for cell in line) for line in [names, *lines])
    table = read_exports([written(tmp_path, "wandb_export.csv", text)])
    expected = [("big - t5", "1", "4.125", "val_loss"), ("alibi", "2", "4.25", "val_loss")]
    assert rows(table, "name", "seed", "value", "metric") == expected
    assert table["caveat"].tolist() == ["", "alibi with seed 2 ends at step 100, another run at 200"]


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("run-t5-seed1-tag-val_loss.csv", ("t5", "1", "val_loss")),
        ("run-logs_t5_seed_12_version_0-tag-val_loss (1).csv", ("logs_t5_version_0", "12", "val_loss")),
        ("t5-s3.csv", ("t5", "3", "")),
        ("gpt-2-seed=4.csv", ("gpt-2", "4", "")),
        ("t5-7.csv", ("t5", "7", "")),
        ("alibi/Seed1.csv", ("alibi", "1", "")),
    ],
)
def test_tensorboards_scalars_take_name_and_seed_from_the_files_name(
    tmp_path: Path, file: str, expected: tuple[str, str, str]
) -> None:
    curve = "Wall time,Step,Value\n1.7e9,9,5.5\n1.7e9,100,3.25\n1.7e9,100,3.5\n1.7e9,20,4.5\n"
    table = read_exports([written(tmp_path, file, curve)])
    assert rows(table, "name", "seed", "metric", "value") == [(*expected, "3.5")]


def evaluation(model: str, acc: float, **config: Any) -> dict[str, Any]:
    arc = {"alias": "arc_easy", "name": "arc_easy", "sample_len": 2376, "acc,none": acc, "acc_stderr,none": 0.01}
    gsm = {"alias": "gsm8k", "exact_match,strict-match": 0.25, "exact_match_stderr,strict-match": "N/A"}
    gsm |= {"exact_match,flexible-extract": 0.5, "exact_match_stderr,flexible-extract": 0.02}
    return {
        "results": {"arc_easy": arc, "gsm8k": gsm, "wikitext": {"word_perplexity,none": 30.5, "alias": "wikitext"}},
        "higher_is_better": {"arc_easy": {"acc": True}, "wikitext": {"word_perplexity": False}},
        "config": {"model": "hf", "model_args": f"pretrained={model},dtype=float32"} | config,
        "model_name": model,
    }


def test_lm_evaluation_harness_gives_a_row_for_each_metric_of_a_task(tmp_path: Path) -> None:
    found = evaluation("org/m", 0.5, random_seed=0, fewshot_seed=1234)
    table = read_exports([written(tmp_path, "results_2026-08-21T19-56-54.json", found)])
    assert rows(table, "name", "seed", "data", "metric", "better", "value") == [
        ("org/m", "0", "arc_easy", "acc", "higher", "0.5"),
        ("org/m", "0", "gsm8k", "exact_match,strict-match", "", "0.25"),
        ("org/m", "0", "gsm8k", "exact_match,flexible-extract", "", "0.5"),
        ("org/m", "0", "wikitext", "word_perplexity", "lower", "30.5"),
    ]


@pytest.mark.parametrize(
    ("evaluations", "expected"),
    [
        ({"x": ("m", 1, 9), "y": ("m", 2, 9)}, [("m", "1"), ("m", "2")]),
        ({"x": ("m", 0, 1), "y": ("m", 0, 2)}, [("m", "1"), ("m", "2")]),
        ({"seed3/m": ("m", 0, 1234), "seed4/m": ("m", 0, 1234)}, [("m", "3"), ("m", "4")]),
        (
            {"a": ("org/m-70m-seed5", 0, 1234), "b": ("org/m-70m-seed6", 0, 1234)},
            [("org/m-70m", "5"), ("org/m-70m", "6")],
        ),
        ({"x": ("m", 0, 1234), "y": ("n", 0, 1234)}, [("m", "0"), ("n", "0")]),
        ({"seed1": ("m", None, None), "seed2": ("m", None, None)}, [("m", "1"), ("m", "2")]),
    ],
)
def test_an_evaluations_seed_is_the_first_that_differs_between_files(
    tmp_path: Path, evaluations: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    files = [
        written(tmp_path / folder, "results.json", evaluation(model, 0.5, random_seed=seed, fewshot_seed=fewshot))
        for folder, (model, seed, fewshot) in evaluations.items()
    ]
    table = read_exports(files)
    assert rows(table[table["data"] == "arc_easy"], "name", "seed") == expected


@pytest.mark.parametrize("args", ["pretrained=gpt2,dtype=float", {"dtype": "float", "pretrained": "gpt2"}])
def test_a_model_without_name_is_the_pretrained_one(tmp_path: Path, args: Any) -> None:
    old = {"results": {"lambada": {"ppl": 20, "ppl_stderr": 1.5}}, "config": {"model_args": args, "random_seed": 1}}
    table = read_exports([written(tmp_path, "results.json", old)])
    assert rows(table, "name", "seed", "metric", "value") == [("gpt2", "1", "ppl", "20")]


def test_mlflows_runs_that_failed_keep_a_doubt(tmp_path: Path) -> None:
    head = "run_id,experiment_id,status,artifact_uri,metrics.val_loss,params.pos,params.seed,tags.mlflow.runName\n"
    lines = "ab1,0,FINISHED,mlruns/ab1,3.5,t5,1,fast-sun\nab2,0,FAILED,mlruns/ab2,4.5,t5,2,slow-sun\n"
    chosen = {"name": "params.pos", "seed": "params.seed", "value": "metrics.val_loss"}
    table = read_exports([written(tmp_path, "mlflow.csv", head + lines)], chosen)
    assert rows(table) == [("t5", "1", "3.5"), ("t5", "2", "4.5")]
    assert table["caveat"].tolist() == ["", "t5 with seed 2 is failed: its value may be an early one"]
    with pytest.raises(BadTable, match=r"no column name .* params\.pos, params\.seed"):
        read_exports([tmp_path / "mlflow.csv"])


def test_of_aims_curves_each_run_has_its_last_value(tmp_path: Path) -> None:
    """With a metric's context in its name, as train and val are one metric for Aim."""
    head = "idx,step,value,epoch,time,run.hash,run.hparams.pos,run.hparams.seed,metric.name,metric.context.subset\n"
    lines = [
        f"{n},{step},{value},0,2026-11-28,{run},t5,{seed},loss,{subset}"
        for run, seed in (("aa", 1), ("bb", 2))
        for subset in ("train", "val")
        for n, (step, value) in enumerate([(20, 3.25 + seed), (10, 9.0)])
    ]
    chosen = {"name": "run.hparams.pos", "seed": "run.hparams.seed"}
    table = read_exports([written(tmp_path, "aim.csv", head + "\n".join(lines))], chosen)
    assert rows(table, "name", "seed", "metric", "value") == [
        ("t5", seed, f"loss subset={subset}", value)
        for seed, value in (("1", "4.25"), ("2", "5.25"))
        for subset in ("train", "val")
    ]


def test_a_log_has_the_last_number_after_each_name(tmp_path: Path) -> None:
    """As modded-nanogpt and nanoGPT print them; name and seed are in the file's name."""
    text = "step:0/9 val_loss:10.83\nstep 9: train loss 1.5, val_loss = 3.2785\nstep:9/9 val_loss: 3.2781 time:5ms\n"
    file = written(tmp_path, "new-seed3.log", text)
    assert rows(read_exports([file], {"value": "val_loss"})) == [("new", "3", "3.2781")]
    for columns, problem in (({}, "needs value=NAME"), ({"value": "loss"}, "has no loss")):
        with pytest.raises(BadTable, match=rf"{problem}; it has step, val_loss"):
            read_exports([file], columns)
    with pytest.raises(BadTable, match="no number after a name"):
        read_exports([written(tmp_path, "a-seed1.txt", "nothing here\n")], {"value": "loss"})
    diverged = written(tmp_path, "new-seed4.log", "loss=nan\n")
    assert rows(read_exports([diverged], {"value": "loss"})) == [("new", "4", "nan")]


def test_files_of_several_kinds_are_one_table(tmp_path: Path) -> None:
    curve = "Wall time,Step,Value\n1.7e9,100,3.5\n"
    files = [written(tmp_path, f"t5-seed{seed}.csv", curve) for seed in (1, 2)]
    table = read_exports([*files, written(tmp_path, "more.csv", COMMAS)])
    assert rows(table) == [*PLAIN, ("t5", "1", "3.5"), ("t5", "2", "3.5")]
    assert not table.isna().any(axis=None)


@pytest.mark.parametrize(
    ("content", "columns", "problem"),
    [
        (b"\x89PNG\r\n\x1a\n", {}, "is not UTF-8 text (byte 0x89); save it as csv in UTF-8"),
        (b"\xff\xfea", {}, "is not UTF-8 text (byte 0x61); save it as csv in UTF-8"),
        ("name,seed".encode("utf-16-le"), {}, "is not text; save it as csv in UTF-8"),
        (b"\x1f\x8b\x08\x00", {}, "can't be read: Compressed file ended before the end-of-stream marker was reached"),
        ("", {}, "has no rows"),
        ("name,seed,value\n", {}, "has no rows"),
        ("name,seed,value\na,1,2\na,2,0,93\n", {}, "row 3 has 4 cells, the header has 3"),
        ("name,seed,value,value\na,1,2,3\n", {}, "has two columns value"),
        (
            "name;seed;value;tokens\na;1;0,5;999\na;2;0,6;1.234\n",
            {},
            "row 3, column tokens: '1.234': is the dot for decimals or for thousands?",
        ),
        ("model,seed,loss\na,1,2\n", {"name": "model"}, "has no column value; it has model, seed, loss"),
        ("name,seed,loss\na,1,2\na,2,?\n", {"value": "loss"}, "row 3, column loss: '?' is no number"),
        ("name,run,value\na,x,2\n", {"seed": "run"}, "row 2, column run: 'x' is no number"),
        (
            "name,seed,metric,a,b\nm,1,f1,2,3\n",
            {"value": "a,b"},
            "column metric names the metric, so that only one column can be the value",
        ),
        ('{"results": {}}', {"name": "x"}, "has no columns to choose: leave out name"),
        ('{"results": [', {}, "can't be read: Expecting value: line 1 column 14 (char 13)"),
        (
            "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n",
            {},
            "Git LFS has left a pointer in its place; `git lfs pull` fetches the file",
        ),
        ('{"scores": []}', {}, "is JSON, but not of lm-evaluation-harness"),
        (
            '{"results": {"t": {"acc,none": 1}}}',
            {},
            "has no random_seed in its config, nor a seedN in the name of its folder",
        ),
        ("Wall time,Step,Value\n1,2,3\n", {}, "there is no seed in the name 'results', as there is in NAME-seed1"),
        ('"Step","a-seed1 - l","a-seed1 - l__MIN"\n"x","1","1"\n', {}, "row 2, column Step: 'x' is no number"),
    ],
)  # fmt: skip
def test_what_is_no_export_is_refused_in_one_line_that_names_the_file(
    tmp_path: Path, content: str | bytes, columns: dict[str, str], problem: str
) -> None:
    file = written(tmp_path, "results", content)
    with pytest.raises(BadTable) as caught:
        read_exports([file], columns)
    assert str(caught.value) == f"{file}: {problem}"


def test_a_role_that_does_not_exist_is_refused() -> None:
    with pytest.raises(BadTable, match=r"^sed: .*seed"):
        read_exports([], {"sed": "seed"})


def test_a_file_that_is_not_there_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_exports([tmp_path / "results.csv"])
