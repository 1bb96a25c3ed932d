"""Settings of all commands but train: types, defaults, limits and the words of --help."""

import os
import shlex
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import yaml

from poslab.checked import Checked, Limits
from poslab.config.command_line import SCHEME
from poslab.config.fields import (
    MOST_TOKENS,
    Amount,
    Count,
    Positive,
    PositiveAmount,
    Remembered,
    Seed,
    Threads,
    setting,
)
from poslab.config.nodes import TARGET, schemes
from poslab.errors import SettingError

_CKPT = "a checkpoint, or a run folder: its best weights; last: the newest run in runs"
_POS = "pos=SCHEME, pos.NAME=VALUE, as for train: another scheme, or setting, that takes the tables as trained"
_DEVICE = "auto, cpu or cuda"
_THREADS = "processors to compute on; null: all"


@dataclass
class ModelChanges(Checked):
    """Settings of a trained model that an evaluation may change."""

    memory_length: list[Remembered] | None = None


@dataclass
class EvaluateConfig(Checked):
    """Evaluate a trained model at several lengths, also beyond the one that it was trained to.

    Examples
      poslab evaluate RUN_FOLDER
      poslab evaluate RUN_FOLDER lengths=[64,128,256,512,1024]
      poslab evaluate FILE.ckpt data_path=other.txt stride=16
      poslab evaluate RUN_FOLDER pos.scaling=yarn pos.factor=4
      poslab evaluate RUN_FOLDER model.memory_length=0,64,256
    """

    ckpt: str = setting(bare=True, help=_CKPT)
    lengths: list[Positive] | None = setting(
        None, help="of windows, such as [64,128,256]; null: a quarter of the training length to four times it"
    )
    stride: Positive | None = setting(None, help="of sliding windows; null: half of each length")
    last: Positive | None = setting(
        None, help="tokens at the end of a window that count in its last loss; null: half the training length"
    )
    tokens: Positive | None = setting(
        MOST_TOKENS,
        help="of a longer text about so many count at each length, in stretches spread evenly over it; null: all",
    )
    data_path: str | None = setting(
        None,
        help="another text: all of it is used; null: the test part of the text trained on, or else its validation part",
    )
    pos: SCHEME = setting({}, help=_POS)
    model: ModelChanges | None = setting(
        None,
        help="model.memory_length=0,64: tokens remembered before each window, one or several; by default, of a model "
        "that remembers, none, its own, and once and four times the training length",
    )
    device: Literal["auto", "cpu", "cuda"] = setting("auto", help=_DEVICE)
    threads: Threads | None = setting(None, help=_THREADS)
    allow_code: bool = setting(False, help="import a scheme from outside poslab that the checkpoint names")


@dataclass
class CompareConfig(Checked):
    """Compare runs: a page that says which scheme is better, by how much and how sure, and shows what was learned.

    Examples
      poslab compare runs/ablation
      poslab compare RUN_FOLDER RUN_FOLDER
      poslab compare runs/recall metric=exact length=96
      poslab compare runs/field pairs=all
      poslab compare runs/shaw_clip baseline="SCHEME max_distance=16"
      poslab compare table=results.csv better=lower
      poslab compare runs/published/nanogpt claims=published/nanogpt
    """

    runs: list[str] = setting(["runs"], bare=True, help="a folder with runs at any depth, or several")
    table: str | None = setting(
        None,
        help="in place of runs: a csv or parquet file of results from anywhere, such as a report's results.csv, with "
        "columns name, seed and value, and data, metric, length, status, better and unit if there; any other is a "
        "setting, and the first row has the baseline",
    )
    better: Literal["lower", "higher"] | None = setting(
        None, help="of a table's figures, where it has no column of that name"
    )
    claims: str | None = setting(
        None,
        help="a yaml file of what is to be shown, or the name of one in configs/claims: each claim gets a verdict",
    )
    baseline: str | None = setting(
        None,
        help="what the others are compared with, as reports name it, or a scheme and some of its settings; null: the "
        "scheme that train has by default, else one that knows nothing of position, else the first by name",
    )
    pairs: Literal["baseline", "all"] = setting(
        "baseline", help="baseline: test each with the baseline; all: test all pairs"
    )
    metric: str | None = setting(
        None, help="what runs are compared by; null: the loss of texts, how many examples of a task are right (exact)"
    )
    length: Positive | None = setting(
        None, help="the length at which a task is compared; null: the first tested beyond those of training"
    )
    validation: Literal["last", "best"] = setting(
        "last",
        help="whose loss is compared where no part of a text was held out: last, that of the end of training; or best, "
        "the lowest, which is too good by having been chosen",
    )
    effect: PositiveAmount | None = setting(
        None,
        help="what matters: where no difference can be shown, whether schemes are equal within it, or how many seeds "
        "would show it; null: 0.02 nats, or 0.1 of the examples",
    )
    looks: Positive = setting(
        1,
        help="how often you will compare, adding seeds in between; each look costs power, unplanned ones too",
    )
    measure: bool = setting(True, help="false: load no model, to measure losses by length or to draw")
    sentence: str | None = setting(
        None, text=True, help="text whose attention is drawn; null: the beginning of the validation text"
    )
    out: str | None = setting(
        None, help='folder of the report; null: "report" in the folder of the runs, or NAME-report beside NAME.csv'
    )
    latex: bool = setting(False, help="also write the table of results as results.tex")
    allow_differences: bool = setting(False, help="compare runs that differ in more than the scheme")
    threads: Threads | None = setting(None, help=_THREADS)
    allow_code: bool = setting(False, help="import schemes from outside poslab that checkpoints name")


@dataclass
class ExplainConfig(Checked):
    """Explain how position works in a model: a page that opens without a network, on a phone, too.

    Examples
      poslab explain RUN_FOLDER
      poslab explain RUN_FOLDER RUN_FOLDER out=side_by_side.html
      poslab explain pos=SCHEME pos.SETTING=VALUE
    """

    ckpt: list[str] = setting([], bare=True, help=f"{_CKPT}; or two, or a folder of two, side by side")
    pos: SCHEME = setting({}, help="without a run: a scheme at its initialisation, with the settings of train")
    sentence: str | None = setting(
        None, text=True, help="text that the model is probed with; null: the beginning of the validation text"
    )
    out: str | None = setting(None, help='the page; null: "explanation.html" in the (first) run, or here without one')
    threads: Threads | None = setting(None, help=_THREADS)
    allow_code: bool = setting(False, help="import a scheme or task from outside poslab that the checkpoint names")

    def __post_init__(self) -> None:
        scheme = next((name for name in self.ckpt if name in schemes() and not os.path.exists(name)), None)
        if scheme is not None:
            raise SettingError("ckpt", scheme, f"no such run; pos={scheme} explains the scheme at its initialisation")
        if bool(self.ckpt) == bool(self.pos):
            problem = "name a run, or in its place a scheme as pos=NAME" if not self.ckpt else "the run has its scheme"
            raise SettingError("ckpt", ",".join(self.ckpt), problem)
        if len(self.ckpt) > 2:
            raise SettingError("ckpt", ",".join(self.ckpt), "at most two stand side by side")


@dataclass
class GenerateConfig(Checked):
    """Continue a prompt with a trained model. The text goes to stdout as it comes, everything else to stderr.

    Examples
      poslab generate RUN_FOLDER prompt="I had always thought"
      poslab generate RUN_FOLDER prompt="Yes, but" prompt="No" samples=3 seed=2 top_p=0.9
      poslab generate FILE.ckpt prompt="He said:" temperature=0 max_new_tokens=1000 > text.txt
    """

    ckpt: str = setting(bare=True, help=_CKPT)
    prompt: list[str] = setting(
        [], text=True, help="must be given; taken as it is typed; given several times, all are continued in one batch"
    )
    max_new_tokens: Count = 200
    temperature: Amount = setting(0.8, help="0: always the likeliest token")
    top_k: Positive | None = setting(40, help="only so many of the likeliest tokens; null: all")
    top_p: Annotated[float, Limits(gt=0, le=1)] | None = setting(
        None, help="of those, only the likeliest that together have this probability"
    )
    seed: Seed = 1
    samples: Annotated[int, Limits(ge=1, le=1000)] = setting(1, help="texts per prompt")
    stop: bool = setting(True, help="a text ends at <|endoftext|>; in a prompt, <|endoftext|> is text like any other")
    window: Positive | None = setting(
        None,
        help="tokens that each token sees at most; null: the model's context_length, with memory a segment and memory",
    )
    strict: bool = setting(
        False, help="where the positions of the model's scheme end: refuse, rather than compute every token anew"
    )
    pos: SCHEME = setting({}, help=_POS)
    device: Literal["auto", "cpu", "cuda"] = setting("auto", help=_DEVICE)
    threads: Threads | None = setting(None, help=_THREADS)
    allow_code: bool = setting(False, help="import a scheme from outside poslab that the checkpoint names")

    def __post_init__(self) -> None:
        if not self.prompt and self.ckpt != "last" and not os.path.exists(os.path.expanduser(self.ckpt)):
            prompt = shlex.quote(self.ckpt)
            raise SettingError("ckpt", self.ckpt, f"no such run; ckpt=last prompt={prompt} continues it as a prompt")
        if not all(self.prompt) or not self.prompt:
            raise SettingError("prompt", "", "must be given (any text but an empty one)")


@dataclass
class ExportConfig(Checked):
    """Write a trained model as a folder that the transformers library loads.

    Examples
      poslab export RUN_FOLDER to=exported
    """

    ckpt: str = setting(bare=True, help=_CKPT)
    to: str = setting(help="the folder to write; it must be empty, or is made")
    allow_code: bool = setting(False, help="import a scheme from outside poslab that the checkpoint names")


@dataclass
class CheckConfig(Checked):
    """Test a position scheme or a part of the block of your own: a line for each check.

    The checks are the parts of the contract that every scheme keeps. The exit code is 1 if one fails.

    Examples
      poslab check my_file.Scheme
      poslab check my_file.Scheme pos.steepest=0.5 strict=true
      poslab check my_file.Scheme norm=my_file.Norm mlp=my_file.MLP mlp.factor=2
    """

    pos: SCHEME = setting({}, bare=True, help="a scheme by its name or class, and settings")
    norm: SCHEME = setting({}, help="of the block: a class called with a width, and settings")
    mlp: SCHEME = setting({}, help="of the block: a class called with the width D, and settings")
    strict: bool = setting(False, help="exit code 1 also where a part could not be tried")

    def __post_init__(self) -> None:
        if TARGET not in self.pos:
            raise SettingError("pos", "", "must be given first: a scheme by its name, or a class as in my_file.Scheme")
        file = self.pos[TARGET].removesuffix(".py")
        if os.path.exists(f"{file}.py"):
            raise SettingError("pos", self.pos[TARGET], f"is a file; a class in it is given as {file}.NAME")

    @property
    def block(self) -> dict[str, Any]:
        """Nodes of the parts of the block that are tried, by the names of their settings."""
        nodes = {"norm": self.norm, "mlp": self.mlp}
        return {
            part: {name: yaml.safe_load(text) for name, text in node.items()} for part, node in nodes.items() if node
        }


@dataclass
class TrackConfig(Checked):
    """Enter a position scheme into the track of data/track: all under the same conditions, tuned, with twelve seeds.

    Tries the contract (check), tunes, trains, trains the control on this machine, says what is shown, and writes the
    entry. The same command goes on after an interruption.

    Examples
      poslab track my_file.Scheme
      poslab track my_file.Scheme pos.steepest=0.5 name=gentle
      poslab track my_file.Scheme quick=true
      poslab track board
    """

    pos: SCHEME = setting({}, bare=True, help="a scheme by its name or class, and settings; board: make the page")
    name: str | None = setting(None, help="of the entry; null: the scheme's, of a class that of its file")
    quick: bool = setting(False, help="five minutes, three seeds, fewer steps: no entry")
    track: str | None = setting(None, help="folder with rules.yaml and entries; null: data/track")
    runs: str | None = setting(None, help="folder of the runs; null: one in runs with the name of the track's")
    jobs: Positive = setting(2, help="how many runs at a time, each on one processor")

    def __post_init__(self) -> None:
        if TARGET not in self.pos:
            raise SettingError("pos", "", "must be given first: a scheme by its name or class, or board")
