"""Bad configuration: one line that names option, value and what is valid, exit code 2, torch not loaded, no files."""

import json
import re
import subprocess
import sys
from itertools import zip_longest
from pathlib import Path

import pytest
from common import REPOSITORY, SCHEMES, SMOKE, RunScript, compose_config
from hydra.errors import MissingConfigException

from poslab.config.files import CONFIGS
from poslab.config.groups import names
from poslab.config.overrides import explain

TRAIN = REPOSITORY / "scripts" / "train.py"
GROUPS = [folder.name for folder in CONFIGS.iterdir() if folder.is_dir() and folder.name not in ("pos", "claims")]

COMBINED = "pos=own pos._target_=poslab.positions.combined.Combined"

# What is typed, and what the one line must contain: names, which need no torch to be refused.
NAMES = [
    ("pos=t6", "pos=t6: unknown; did you mean "),
    ("experiment=published/nanogtp", "experiment=published/nanogtp: unknown; did you mean published/nanogpt"),
    ("pos._target_=my_file.Mine", "a class of your own is given as pos=own pos._target_=my_file.Mine"),
    (
        "-m pos=my_file.Mine,alibi,rope",
        "_target_: my_file.Mine into conf/pos/mine.yaml, then -m --config-dir conf pos=mine,alibi,rope",
    ),
    (
        "-m pos=own,alibi pos._target_=my_file.Mine",
        "_target_: my_file.Mine into conf/pos/mine.yaml, then -m --config-dir conf pos=mine,alibi",
    ),
    ("~pos", "~pos: can't be left out; pos=NAME chooses one"),
    ("pos=[t5,shaw]", "pos=[t5,shaw]: must be one option; -m pos=t5,shaw runs each"),
    ("pos=5", "pos=5: must be one option; valid: absolute"),
    ("pos==t5", "pos==t5: not of the form option=value; quote"),
    ("--cfg jobs", "--cfg jobs: must be given as --cfg job"),
    ("--config-dir", "--config-dir : must be given as --config-dir FOLDER"),
    ("pos=layers pos.layers.7=rope", "pos.layers.7=rope: is no place of the list; 'pos.layers=[{_target_:NAME,SETTING"),
    ("pos=layers pos.layers.base=500", "pos.layers.base=500: is no place of the list"),
    ("pos=", f"valid: {', '.join(sorted([*SCHEMES, 'own']))}"),
    ("po=t5", "po=t5: unknown setting; did you mean pos?"),
    ("model.context_lenght=64", "did you mean model.context_length"),
    ("pos=shaw +pos.num_buckets=8", "pos.num_buckets=8: unknown setting; valid: max_distance"),
    ("foo", "foo: not of the form option=value; without spaces around the =, and with quotes around a value that has"),
    ("pos = t5", "pos: not of the form option=value; without spaces around the =, "),
    ("t5", "t5: not of the form option=value; pos=t5 chooses it"),
    ("help", "help: not of the form option=value; --help shows what there is"),
    ("rms", "rms: not of the form option=value; model/norm=rms chooses it"),
    ("hydra.run.dir=mine", "hydra.run.dir=mine: not used; run_dir=mine names the folder of a run"),
    ("last", "last: not of the form option=value; resume=last resumes a run, init_from=last begins with its weights"),
    (f"{CONFIGS}", f"{CONFIGS}: not of the form option=value; resume={CONFIGS} resumes a run, init_from={CONFIGS} "),
    (f"{TRAIN}", f"{TRAIN}: not of the form option=value; data=text data.path={TRAIN} trains on that file"),
    ("seed=1,2", "seed=1,2: must be one value; -m runs each of several"),
    ("pos=my_file.Mine", "pos=my_file.Mine: no option; a class is given as pos=own pos._target_=my_file.Mine"),
    ("model/mlp=my_file.Mine", "model/mlp=my_file.Mine: no option; a class is given as model.mlp._target_=my_file.M"),
    ("callbacks=my_file.Mine", "callbacks=my_file.Mine: no option; a class is given as callbacks.mine._target_=my_"),
    ("data=my_file.Mine", "data=my_file.Mine: no option; a class is given as data=task data._target_=my_file.Mine"),
    (f"data={TRAIN}", f"data={TRAIN}: no option, but data; data=text data.path={TRAIN} trains on it"),
    ("schedule=cosin", "schedule=cosin: unknown; did you mean cosine? valid: constant, cosine, linear, wsd"),
    ("optim=[adamw,sgd]", "optim=[adamw,sgd]: must be one option; -m optim=adamw,sgd runs each"),
    ("hydra/launcher=joblb", "hydra/launcher=joblb: unknown; did you mean joblib"),
    ("logger=[csv,wandbe]", "logger=wandbe: unknown; did you mean wandb? valid: csv, mlflow"),
    ("optimizer=muon", "optimizer=muon: unknown setting; did you mean optim"),
]
# Values; those that a type or its limits rule out are in test_bad_input.py.
VALUES = [
    ("optim.foo=1", "optim.foo=1: unknown setting; valid: learning_rate"),
    ("data=text", "data.path=: must be given (a file, a folder, a quoted glob, or hf://owner/name)"),
    ("evaluation.last=300", "evaluation.last=300: must be at most model.context_length=256"),
    ("pos=t5 pos.max_distance=16", "pos.max_distance=16: must be above 16, the exact half of 32 buckets"),
    ("pos=own pos._target_=nowhere.Scheme", "pos._target_=nowhere.Scheme: can't be imported"),
    ("data=task", "data._target_=: must be given"),
    ("data=recall data.stride=3", "data.stride=3: a text has this setting, a task doesn't"),
    ("pos=randomized pos.of=rop", "error: pos.of=rop: unknown; did you mean "),
    (
        "pos=randomized pos.of.bas=5",
        "error: pos.of.bas=5: unknown setting; did you mean pos.of.base?",
    ),
    ("pos=randomized pos.of.base=1", "error: pos.of.base=1: must be above 1"),
    ("pos=randomized pos.of=5", "error: pos.of=5: must be a scheme: the name of one"),
    ("pos=randomized pos.of._target_=no.where", "error: pos.of._target_=no.where: can't be imported"),
    ("pos=randomized pos.max_position=10", "error: pos.max_position=10: must be at least the context length, 256"),
    (f"{COMBINED} pos.first=t5", "error: pos.second=: must be given (PositionScheme)"),
    ("model.retrieval.size=64", "error: model.retrieval.layer=: must be given (a whole number)"),
    ("pos=t5 model.memory_length=8", "error: data.order=shuffled: must be stream with model.memory_length or"),
    ("data.order=stream", "error: data.stride=64: must be null: with data.order=stream windows"),
    ("data.test_share=0.9", "error: data.test_share=0.9: leaves nothing to train on"),
    ("data=copy data.test_lengths=[70]", "data.vocabulary=64: lines of 70 different symbols need at least as"),
    ("data=copy model.context_length=40", "data.max_length=30: needs 62 positions, more than model.context_"),
    ("data=recall evaluation.lengths=[64]", "evaluation.lengths=[64]: are lengths of windows over a text"),
    ("data=recall monitor=accuracy_depth_min", "monitor=accuracy_depth_min: unknown; valid: loss, exact, accuracy"),
    ("monitor=exact", "error: monitor=exact: unknown; valid: loss, perplexity"),
    ("data=parity data._target_=math.sqrt", "data._target_=math.sqrt: must be derived from poslab.tasks.Task"),
    ("callbacks.mine._target_=nowhere.Mine", "error: callbacks.mine._target_=nowhere.Mine: can't be imported"),
    ("seed=${nothing}", "seed=${nothing}: Interpolation key 'nothing' not found"),
]

OF_SCRIPTS = [
    ("compare", "rnus=x", "rnus=x: unknown setting; did you mean runs?"),
    (
        "evaluate",
        "",
        "ckpt=: must be given (a checkpoint, or a run folder: its best weights; last: the newest run in runs)",
    ),
    *((name, "-pos=t5", "-pos=t5: unknown flag; ") for name in ("train", "compare", "evaluate", "explain")),
]

# Runs all command lines in one interpreter.
IN_ONE = """
import contextlib, io, json, runpy, sys
folder, ends = sys.argv[1], []
if len(sys.argv) == 2:
    sys.modules["torch"] = None
for name, *arguments in json.load(sys.stdin):
    sys.argv = [f"{folder}/{name}.py", *arguments]
    streams, code = (io.StringIO(), io.StringIO()), 0
    with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
        try:
            runpy.run_path(sys.argv[0], run_name="__main__")
        except SystemExit as end:
            code = end.code or 0
    ends.append((code, *(stream.getvalue() for stream in streams)))
print(json.dumps(ends))
"""


def run_in_one(folder: Path, *lines: tuple[str, ...], torch: bool = False) -> list[tuple[int, str, str]]:
    """(exit code, stdout, stderr) of scripts with arguments, run in `folder`."""
    command = [sys.executable, "-c", IN_ONE, str(REPOSITORY / "scripts"), *["torch"] * torch]
    done = subprocess.run(command, input=json.dumps(lines), capture_output=True, text=True, cwd=folder, check=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("torch", [False, True], ids=["names, before torch", "values"])
def test_one_line(torch: bool, tmp_path: Path) -> None:
    of_train = [("train", *line) for line in (VALUES if torch else NAMES)]
    lines = of_train if torch else [*of_train, *OF_SCRIPTS]
    ends = run_in_one(tmp_path, *((name, *typed.split()) for name, typed, _ in lines), torch=torch)
    for (_, typed, expected), (code, output, complaint) in zip(lines, ends, strict=True):
        assert (code, complaint.count("\n")) == (2, 1), (typed, complaint)
        assert output == "" or (torch and output == "loading torch and Lightning ...\n")
        assert complaint.startswith("error: ")
        assert expected in complaint
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("plugin", ["hydra/launcher=joblib", "hydra/sweeper=optuna"])
def test_a_plugin_that_is_not_installed_names_its_extra(plugin: str) -> None:
    missing = MissingConfigException("...", missing_cfg_file=plugin.replace("=", "/"), options=["basic"])
    assert explain(missing, [plugin]) == (
        f'{plugin}: needs a package that is not installed: python -m pip install "poslab[sweep]"'
    )


def test_help_before_torch(tmp_path: Path) -> None:
    plain, chosen = run_in_one(
        tmp_path,
        ("train", "--help", "all"),
        ("train", "pos=randomized", "pos.of=t5", "pos.of.num_buckets=16", "--help"),
    )
    assert (plain[0], plain[2]) == (0, "")
    assert "scripts/train.py pos=t5" in plain[1]
    assert re.findall(r"^[ *] pos=(\w+)\b", plain[1], flags=re.MULTILINE) == SCHEMES
    assert all(f" {group}=" in plain[1] for group in GROUPS)
    assert "claims=" not in plain[1]
    assert all(re.search(rf"^  {name}: |^[ *] {name}=", plain[1], flags=re.MULTILINE) for name in names())
    assert max(len(line) for line in plain[1].splitlines() if str(REPOSITORY) not in line) <= 120
    # What is beside a setting in its yaml, in one that this builds on, and of an option the first sentence.
    for setting, words in {
        "  data.num_workers: 0": "processes that load batches",
        "  optim.weight_decay: 0.1": "of matrices;",
        "* data=verdict": 'Edith Wharton, "The Verdict"',
        "  experiment=field": r"Which of all schemes\? Every file in configs/pos, trained as",
    }.items():
        assert re.search(rf"^{re.escape(setting)} +# {words}", plain[1], flags=re.MULTILINE), setting
    assert "\n  pos.of._target_: t5\n  pos.of.num_buckets: 16\n" in chosen[1]
    assert "longest_text" not in plain[1]  # told by the data
    assert list(tmp_path.iterdir()) == []


def test_every_option_composes() -> None:
    options = {group: [f"{group}={yaml.stem}" for yaml in CONFIGS.glob(f"{group}/*.yaml")] for group in GROUPS}
    lengths = ("data.min_length=1", "data.max_length=4", "data.test_lengths=[4]")
    needs = {"data=text": (f"data.path={TRAIN}",), "data=task": ("data._target_=poslab.tasks.bits.Parity", *lengths)}
    together = zip_longest(*(options.pop(group) for group in ("data", "logger", "trainer", "optim")))
    for chosen in [*together, *((option,) for group in options.values() for option in group)]:
        given = [option for option in chosen if option is not None]
        assert compose_config(*given, *needs.get(given[0], ()))


def test_too_large_a_size_is_named(run_script: RunScript) -> None:
    code, _, complaint = run_script("train", *SMOKE, "pos=absolute", "pos.max_positions=1000000000000")
    problem = "the model does not fit into memory, and this is the largest of its sizes"
    assert (code, complaint) == (2, f"error: pos.max_positions=1000000000000: {problem}\n")
