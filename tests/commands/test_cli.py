"""The program `poslab`: its commands, which are those of scripts/, and how messages name them."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from common import REPOSITORY, SMOKE, RunScript, assert_refused

from poslab import __version__
from poslab.commands.cli import COMMANDS, main
from poslab.config.command_line import argv_of, command_line
from poslab.config.files import CONFIGS

# Commands that are no scripts, and those that are.
WITHOUT_SETTINGS = ("list", "info", "version")
SCRIPTS = [name for name in COMMANDS if name not in WITHOUT_SETTINGS]
Called = Callable[..., tuple[int, str, str]]


@pytest.fixture
def program(run_main: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Called:
    """Run `poslab` in this process, in a folder of its own: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: run_main(main, "/anywhere/bin/poslab", *arguments)


def test_commands_are_the_scripts() -> None:
    scripts = {path.stem for path in (REPOSITORY / "scripts").glob("*.py")}
    others = {"benchmark", "exercises", "pages", "pictures", "simulate", "study"}  # which need a checkout
    assert scripts - others == {*SCRIPTS}


def test_lists_its_commands_and_says_its_version(program: Called) -> None:
    code, text, complaints = program()
    assert (code, complaints) == (0, "")
    assert all(f"  poslab {name} " in text for name in COMMANDS)
    assert program("--help") == program("-h") == (0, text, "")
    for typed in (["--version"], ["-v"], ["-V"], ["version"], ["train", "--version"], ["compare", "--version"]):
        assert program(*typed) == (0, f"poslab {__version__}\n", "")


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_is_asked_for_either_way(name: str, program: Called) -> None:
    assert program("help", name) == program(name, "--help")


def test_the_configuration_of_a_run_leads_to_its_folder(program: Called, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").touch()
    for typed in (["--config", "run/config.yaml"], ["--config=run/config.yaml"]):
        code, _, complaint = program("train", *typed)
        assert code == 2
        assert "resume=run " in complaint
        assert "init_from=run " in complaint


def test_lists_every_option_once_in_a_line(program: Called) -> None:
    code, text, complaints = program("list")
    assert (code, complaints) == (0, "")
    groups = ("pos", "data", "model", "experiment")
    for group in groups:
        pattern = "**/*.yaml" if group == "experiment" else "*.yaml"
        options = [file.relative_to(CONFIGS / group).with_suffix("") for file in (CONFIGS / group).glob(pattern)]
        for option in options:
            assert len(re.findall(rf"^  {group}={option.as_posix()}(?: |$)", text, flags=re.MULTILINE)) == 1
    tasks = program("list", "tasks")[1]
    assert "data=recall " in tasks
    assert "data=verdict " not in tasks
    assert "pos=" not in tasks


@pytest.mark.parametrize("typed", ["list scemes", "info now", "version 2"])
def test_commands_without_settings_refuse_what_they_do_not_take(typed: str, program: Called) -> None:
    assert_refused(program(*typed.split()), f"{typed.split()[1]}: ")


def test_commands_without_settings_have_help(program: Called) -> None:
    for name in WITHOUT_SETTINGS:
        code, text, complaints = program(name, "--help")
        assert (code, bool(text), complaints) == (0, True, "")


@pytest.mark.slow
def test_the_module_is_the_program(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "poslab", "version"]
    assert subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True).stdout == (
        f"poslab {__version__}\n"
    )


@pytest.mark.parametrize(
    ("variable", "value", "spins"),
    [("NOTHING", "", "3000"), ("GOMP_SPINCOUNT", "7", "7"), ("OMP_WAIT_POLICY", "active", None)],
)
def test_threads_wait_shortly_unless_the_user_says_how(
    variable: str, value: str, spins: str | None, program: Called, monkeypatch: pytest.MonkeyPatch
) -> None:
    for known in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.setenv(known, "")
        monkeypatch.delenv(known)
    monkeypatch.setenv(variable, value)
    program("--version")
    assert os.environ.get("GOMP_SPINCOUNT") == spins


NOT_UTF8 = os.fsdecode(b"n\xff\xe9")


@pytest.mark.parametrize(
    "typed",
    [
        ["train", f"run_dir={NOT_UTF8}"],
        ["train", f"resume={NOT_UTF8}"],
        ["train", "data=text", f"data.path={NOT_UTF8}.txt"],
        ["train", "-m", f"seed=1,2 run_dir={NOT_UTF8}"],
        ["train", f"{NOT_UTF8}=1"],
        ["generate", "last", f"prompt={NOT_UTF8}"],
        ["evaluate", NOT_UTF8],
        ["explain", NOT_UTF8],
        ["export", "last", f"to={NOT_UTF8}"],
    ],
)
def test_bytes_that_are_no_utf8_are_refused_in_a_line(typed: list[str], program: Called, tmp_path: Path) -> None:
    code, _, complaint = program(*typed)
    assert code == 2
    assert "UTF-8" in complaint
    assert len(complaint.splitlines()) == 1
    assert not [*tmp_path.iterdir()]


def test_compare_reads_folders_of_any_name(program: Called, tmp_path: Path) -> None:
    (tmp_path / "runs" / NOT_UTF8).mkdir(parents=True)
    for typed in ("runs", f"runs/{NOT_UTF8}"):
        code, _, complaint = program("compare", f"runs={typed}")
        assert (code, len(complaint.splitlines())) == (2, 1)


def test_a_run_in_a_folder_whose_name_is_not_utf8_is_refused_in_a_line(
    program: Called, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / NOT_UTF8
    folder.mkdir()
    (folder / "my.txt").write_text("some words " * 1000)
    monkeypatch.chdir(folder)
    code, _, complaint = program("train", *SMOKE, "data=text", "data.path=my.txt", "run_dir=run")
    assert code == 2
    assert complaint.splitlines()[-1].startswith("error: ")
    assert "UTF-8" in complaint


@pytest.mark.parametrize(
    "error", [PermissionError(13, "Permission denied", "a/b"), OSError(40, "Too many links", "a/b")]
)
def test_files_that_the_system_refuses_are_named_in_a_line(
    error: OSError, program: Called, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr("poslab.commands.generate.load_checkpoint", refuse)
    assert program("generate", "run", "prompt=x") == (2, "", f"error: a/b: {error.strerror}\n")


def test_what_is_no_command(program: Called) -> None:
    assert_refused(program("trian", "pos=t5"), "trian: unknown command; did you mean train?")
    lost = "error: seed=2: a command comes first, as in poslab train seed=2 'sample.prompt=I had'\n"
    assert program("seed=2", "sample.prompt=I had") == (2, "", lost)


@pytest.mark.parametrize(
    ("typed", "leads_to"),
    [
        # Settings as other programs type them.
        ("train --pos t5", "pos=t5"),
        ("train --pos=t5", "pos=t5"),
        ("train --resume last", "resume=last"),
        ("train --lr 0.1", "optim.learning_rate=0.1"),
        ("generate last -p x", "prompt=x"),
        ("explain --run last", "ckpt=last"),
        # What an option is called elsewhere.
        ("train pos=rotary", "rope"),
        ("train pos=yarn", "rope pos.scaling=yarn"),
        ("train pos=Learned", "absolute"),
        ("train trainer=cuda", "gpu"),
        ("train -m pos=all", "experiment=field"),
        ("train -m data=all", "-m data="),
        # Texts.
        ("train data=my.txt", "data=text data.path="),
        ("train data=texts.jsonl.gz", "data=text data.path="),
        ("train data=hf://owner/name", "data=text data.path=hf://owner/name"),
        ("train data=wikitext", "data.path=hf://"),
        # The whole name, to paste.
        ("train data.batch=8", "data.batch_size"),
        ("train optim.lr=1e-3", "optim.learning_rate"),
        ("train data.file=x.txt", "data.path"),
        ("train seed=1..3", "seed=range(1,4)"),
        ("train -m seed=1-3", "seed=range(1,4)"),
        ("train -m seed=1:3", "seed=range(1,4)"),
        ("train pos=t5 pos.buckets=8", "pos.num_buckets"),
        # Several values with spaces, or a word in the place of a setting.
        ("train -m pos=t5, rope", "-m pos=t5,rope"),
        ("explain t5", "pos=t5"),
        ("check test_cli", "test_cli.NAME"),
        ("check test_cli.py", "test_cli.NAME"),
        # A second word without a name.
        ("generate hello", "prompt=hello"),
        ("generate last hello", "prompt=hello"),
        ("evaluate last 512", "lengths=512"),
        ("evaluate last 64,512", "lengths=64,512"),
        ("export last out", "to=out"),
        # A setting, or another program's word, as a command.
        ("resume r2", "train resume=r2"),
        ("resume", "train resume="),
        ("pos t5", "train pos=t5"),
        ("sample r1", "mean generate?"),
        ("test r1", "mean evaluate?"),
        ("train resume", "resume=VALUE"),
        ("train resume r2", "resume=r2"),
    ],
)
def test_a_line_that_is_refused_leads_to_one_that_is_not(
    typed: str, leads_to: str, program: Called, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(__file__).parent)
    code, _, errors = program(*typed.split())
    assert (code, errors.count("\n")) == (2, 1)
    assert leads_to in errors.partition(": ")[2].removeprefix(typed.partition(" ")[2])


@pytest.mark.parametrize("name", SCRIPTS)
def test_help_is_that_of_the_script(name: str, program: Called, run_script: RunScript) -> None:
    code, text, complaints = program(name, "--help")
    assert (code, complaints) == (0, "")
    assert f"\n  poslab {name} " in text
    script = f"python {REPOSITORY}/scripts/{name}.py"
    assert run_script(name, "--help") == (0, text.replace(f"\n  poslab {name} ", f"\n  {script} "), "")


def test_commands_are_named_as_they_were_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/anywhere/bin/poslab", "pos=t5"])
    assert argv_of("train", "seed=2") == ["/anywhere/bin/poslab", "train", "seed=2"]
    assert command_line("compare", "runs=my runs") == "poslab compare 'runs=my runs'"
    monkeypatch.chdir(REPOSITORY)
    monkeypatch.setattr(sys, "argv", ["scripts/train.py", "pos=t5"])
    assert argv_of("train", "seed=2") == ["scripts/train.py", "seed=2"]
    assert command_line("compare", "runs=my runs") == "python scripts/compare.py 'runs=my runs'"
    monkeypatch.setattr(sys, "argv", ["train.py"])  # somebody else's
    assert command_line("compare") == "poslab compare"


def test_help_of_every_day_fits_a_screen(program: Called) -> None:
    code, text, complaints = program("train", "--help")
    assert (code, complaints) == (0, "")
    assert len(text.splitlines()) <= 30
    assert max(map(len, text.splitlines())) <= 120
    assert "\n  optim.learning_rate: " in text
    assert "--help all" in text
    chosen = program("train", "pos=shaw", "--help")[1]
    assert "\n  pos.max_distance: " in chosen
    assert len(program("train", "--help", "all")[1].splitlines()) > 200


def test_help_knows_an_option_of_the_user(program: Called, tmp_path: Path) -> None:
    (tmp_path / "mine" / "pos").mkdir(parents=True)
    shutil.copy(REPOSITORY / "configs" / "pos" / "t5.yaml", tmp_path / "mine" / "pos" / "my_t5.yaml")
    code, text, _ = program("train", "--config-dir", "mine", "pos=my_t5", "--help", "all")
    assert code == 0
    assert "\n* pos=my_t5  " in text
    assert program("train", "--config-dir", "nowhere", "--help")[2] == "error: --config-dir nowhere: no such folder\n"


@pytest.mark.parametrize("option", ["pos/t5.yaml", "experiment/smoke.yaml", "train.yaml"])
def test_an_option_of_the_user_must_not_have_a_taken_name(option: str, program: Called, tmp_path: Path) -> None:
    """Hydra would read poslab's, without a word."""
    own = tmp_path / "mine" / option
    own.parent.mkdir(parents=True)
    own.write_text("_target_: mine.Mine\n")
    refusal = f"error: --config-dir mine: {option}: the name is taken, poslab has a yaml of that name; choose another\n"
    for further in ((), ("--help",)):
        assert program("train", "--config-dir", "mine", *SMOKE, *further) == (2, "", refusal)


def test_an_option_of_the_user_that_is_wrong_is_named(program: Called, tmp_path: Path) -> None:
    (tmp_path / "mine" / "pos").mkdir(parents=True)
    (tmp_path / "mine" / "pos" / "mine.yaml").write_text("a: 1\nb: ]")
    assert_refused(program("train", "--config-dir", "mine", *SMOKE, "pos=mine"), '/mine/pos/mine.yaml", line 2')


def test_hydra_completes_the_settings_of_train(run_script: RunScript, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMP_LINE", "python scripts/train.py seed=2 pos=ro")
    code, words, complaints = run_script("train", "-sc", "query=bash")
    assert (code, complaints) == (0, "")
    assert "pos=rope" in words.split()
    assert "pos=t5" not in words.split()
