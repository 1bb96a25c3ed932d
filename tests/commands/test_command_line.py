"""Command lines as typed: of the scripts without groups, and of train.py, which Hydra reads; nothing needs quotes."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest
from common import composed
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import example, given, settings
from hypothesis import strategies as st
from refusals import refused

from poslab.checked import Checked
from poslab.config.command_line import help_text, parse_line
from poslab.config.fields import setting
from poslab.config.overrides import parse_arguments, quoted_text, unquoted
from poslab.config.scripts import CompareConfig, EvaluateConfig, GenerateConfig
from poslab.errors import UserError

ODD = 'Hello, "world"! (it\'s ${odd}) [x] a=b {c: d} \\ $HOME #1 ~ é 漢字 😀 <|endoftext|>'
SCRIPTS = {"evaluate": EvaluateConfig, "compare": CompareConfig, "generate": GenerateConfig}

# What a command line can hold: no NUL. ??? alone means "not given".
texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
pieces = st.lists(
    st.sampled_from(["\\", "'", '"', "${", "$", "}", "{", "a", " ", "\n", ",", "=", "[", "]", "😀"]), max_size=8
)


@dataclass
class Schema(Checked):
    """Words.

    Examples
      none
    """

    path: str = setting(help="where")
    count: int = 3
    share: float | None = None
    flag: bool = False
    sizes: list[int] | None = None
    folders: list[str] = setting(["runs"], help="several")


@given(text=texts | pieces.map("".join))
@example(text=ODD)
@example(text="'in quotes'")
@example(text="null")
@example(text="\\${a}")
@example(text="1e3")
@example(text=" padded\n")
@settings(max_examples=25, deadline=None, derandomize=True)
def test_any_text_arrives_as_it_was_typed(text: str) -> None:
    if text:
        parsed = parse_line(GenerateConfig, ["ckpt=x", f"prompt={text}", "seed=2", "prompt=and"])
        assert (parsed.prompt, parsed.seed) == ([text, "and"], 2)
    if text != "???":
        assert parse_line(CompareConfig, [f"sentence={text}"]).sentence == text
        (argument,) = parse_arguments([f"sample.prompt={text}"])[1]
        assert composed(argument).sample.prompt == text
        assert unquoted(argument) == f"sample.prompt={text}"


ODD_PATHS = [
    "plain/path.txt", "my, run", "ü", "it's 50 % (new) [x] {y} #1 a=b \\ ${z}", "20241126_0830", "1.10", "12e5", "007",
    "1_000", "-5", "-x", "true", "No", "None", "Null", "nan", ".5", "[a,b]", "a,b", "{a: b}", "a=b", "~/x", "~", "x/",
    " padded ", "C:\\Users\\x", "\\", "100%", "a:b", "$HOME", "glob*.txt", "choice(a)", "a\\,b", 'say "x"', "漢字 😀",
]  # fmt: skip


@pytest.mark.parametrize("path", ODD_PATHS)
def test_paths_are_taken_as_they_are_typed(path: str) -> None:
    assert parse_line(EvaluateConfig, [f"ckpt={path}"]).ckpt == path
    typed = [f"{name}={path}" for name in ("run_dir", "resume", "init_from", "data.path")]
    for of_sweep in ([], ["-m"]) if "," not in path and "(" not in path else ([],):
        _, arguments = parse_arguments([*typed, *of_sweep])
        config = composed(*arguments)
        assert [config.run_dir, config.resume, config.init_from, config.data.path] == [path] * 4
        assert [*map(unquoted, arguments)] == typed or "${" in path


def test_what_is_chosen_by_default_may_be_typed() -> None:
    assert parse_arguments(["experiment=null", "debug=null", "seed=2"])[1] == ["seed=2"]


def test_null_is_no_path() -> None:
    config = composed(*parse_arguments(["run_dir=null", "resume=null", "init_from=null"])[1])
    assert config.run_dir is config.resume is config.init_from is None


@pytest.mark.parametrize(
    ("typed", "each"),
    [
        ("2024_11,1.10,true", ["'2024_11'", "'1.10'", "'true'"]),
        ("a b, c", ["'a b'", "'c'"]),
        ("'a,b',c", ["'a,b'", "'c'"]),
        ("runs/x-seed${seed},y", ["'runs/x-seed${seed}'", "'y'"]),
    ],
)
def test_each_path_of_a_sweep_is_text(typed: str, each: list[str]) -> None:
    for name in ("data.path", "init_from"):
        (argument,) = parse_arguments([f"{name}={typed}", "-m"])[1]
        (override,) = OverridesParser.create().parse_overrides([argument])
        assert [*override.sweep_string_iterator()] == each
    (argument,) = parse_arguments([f"run_dir={typed}", "-m"])[1]  # one folder for all runs
    assert not OverridesParser.create().parse_override(argument).is_sweep_override()


@given(text=texts | pieces.map("".join))
@example(text=ODD)
@settings(max_examples=25, deadline=None, derandomize=True)
def test_quoted_text_is_the_value_to_the_letter(text: str) -> None:
    """As folders of a sweep's jobs are given to Hydra."""
    assert composed(f"run_dir={quoted_text(text)}").run_dir == text


def test_quotes_are_part_of_a_path_but_where_hydra_takes_them() -> None:
    assert parse_line(EvaluateConfig, ["ckpt='mine'"]).ckpt == "'mine'"
    (quoted,) = parse_arguments(["data.path='in Hydra quotes, as ever'"])[1]
    assert composed(quoted).data.path == "in Hydra quotes, as ever"
    assert unquoted(quoted) == "data.path=in Hydra quotes, as ever"


@pytest.mark.parametrize(
    ("typed", "paths"),
    [
        ("one", ["one"]),
        ("one,my two", ["one", "my two"]),
        ("[~/one, two]", ["~/one", "two"]),
        ("it's,b", ["it's", "b"]),
        ("one,,two,", ["one", "two"]),
        ("a,b", ["a,b"]),  # a folder that is there
    ],
)
def test_several_paths(typed: str, paths: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a,b").mkdir()
    assert parse_line(CompareConfig, [f"runs={typed}"]).runs == paths


def test_values_have_the_types_of_their_fields() -> None:
    line = ["path=a=b", "count=7", "share=1e-3", "flag=TRUE", "sizes=[64, 128]", "folders=x"]
    assert parse_line(Schema, line) == Schema("a=b", 7, 0.001, True, [64, 128], ["x"])
    assert parse_line(Schema, ["path=p", "count=1e3", "sizes=1.5e2"]) == Schema("p", 1000, sizes=[150])
    assert parse_line(Schema, ["path=p", "sizes=64,128"]).sizes == [64, 128]
    assert parse_line(Schema, ["path=p", "share=null", "count=1", "count=2"]) == Schema("p", 2)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ([], "path=: must be given (where)"),
        (["path"], "path: not of the form option=value"),
        (["-m"], "-m: unknown flag; --help shows what there is"),
        (["pth=x"], "pth=x: unknown setting; did you mean path? valid: path, count"),
        (["count=1,2"], "count=1,2: must be a whole number"),
        (["path=p", "count=1.5e0"], "count=1.5e0: must be a whole number"),
        (["count=${share}"], "count=${share}: must be a whole number"),
        (["sizes="], "sizes=: must be a list"),
        (["sizes=64,x"], "sizes.1=x: must be a whole number"),
    ],
)
def test_what_a_line_can_not_say(line: list[str], problem: str) -> None:
    with pytest.raises(UserError, match=f"^{re.escape(problem)}"):
        parse_line(Schema, line)


def test_a_path_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One with an equals sign, too, where there is such a file."""
    monkeypatch.chdir(tmp_path)
    Path("lr=0.1").mkdir()
    assert parse_line(EvaluateConfig, ["runs/a", "stride=3"]) == EvaluateConfig("runs/a", stride=3)
    assert parse_line(CompareConfig, ["runs/a", "lr=0.1"]).runs == ["runs/a", "lr=0.1"]
    with refused("lr", "0.1", "NAME=VALUE"):
        parse_line(EvaluateConfig, ["runs/a", "lr=0.1"])


@pytest.mark.parametrize(
    ("typed", "overrides"),
    [
        (["seed=1", "--cfg", "job"], ["seed=1"]),
        (["-m", "data.path=a.txt,b.txt"], ["data.path='a.txt','b.txt'"]),  # several are several
        (["-m", "run_dir=a,b"], ["run_dir='a,b'"]),  # a sweep has one folder
        (["-m", "data.path=a(b.txt"], ["data.path='a(b.txt'"]),
        (["pos.of.base=5", "seed=2", "pos.of=a"], ["pos.of.base=5", "seed=2", "pos.of._target_=a"]),
        (["pos.of=a", "pos=b"], ["pos.of=a", "pos=b"]),
    ],
)
def test_train_s_lines_in_hydra_s_grammar(typed: list[str], overrides: list[str]) -> None:
    assert parse_arguments(typed)[1] == overrides


@pytest.mark.parametrize(
    "word", ["-pos=t5", "-p", "-c", "-1", "-", "--", "-seed=2", "-mx", "--pos=t5", "--conf", "--config-d=x", "--multi"]
)
def test_what_is_no_flag_of_train_s(word: str) -> None:
    """Some are short for flags of Hydra's, or begin like one, and would be read as that."""
    for line in ([word], ["seed=1", word, "-m"], ["--cfg", "job", word]):
        with pytest.raises(UserError, match=rf"^{word}: unknown flag"):
            parse_arguments(line)
    known = ["--cfg=job", "--config-dir", "x", "-h", "--multirun", "--resolve"]
    flags = ["--cfg=job", "--config-dir=x", "-h", "--multirun", "--resolve"]
    assert parse_arguments(["seed=1", *known]) == (flags, ["seed=1"])
    assert parse_arguments(["-sc", "install=bash"]) == (["-sc"], ["install=bash"])


def test_help_has_every_setting_its_default_and_its_words() -> None:
    assert help_text(Schema).splitlines() == [
        "Words.",
        "",
        "Examples",
        "  none",
        "",
        "Settings (name=value) and their defaults",
        "path: ???        where",
        "count: 3",
        "share: null",
        "flag: false",
        "sizes: null",
        "folders: [runs]  several",
    ]


@pytest.mark.parametrize("schema", SCRIPTS.values(), ids=SCRIPTS)
def test_the_examples_of_help_are_valid(schema: type) -> None:
    examples = re.findall(r"^  poslab \w+ (.*)$", help_text(schema), flags=re.MULTILINE)
    assert len(examples) >= 3
    for example_line in examples:
        assert parse_line(schema, shlex.split(example_line.partition(" > ")[0]))
