"""The commands of the program `poslab` by their names; each file of scripts/ runs one of them."""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import poslab
from poslab.commands.cli import run_script, told_in_one_line
from poslab.config.program import NAME, command_line
from poslab.config.scripts import CompareConfig, EvaluateConfig, ExplainConfig, ExportConfig, GenerateConfig
from poslab.errors import UserError, suggestion

Schema = TypeVar("Schema")

# Each imports its work after the command line is checked, which needs no torch.


def _train() -> None:
    from poslab.commands.train import run_train

    run_train()


def _compare(config: CompareConfig) -> None:
    print("reading runs ...", flush=True)
    from poslab.commands.compare import run_comparison

    run_comparison(config, command_line("compare", *sys.argv[1:]))


def _evaluate(config: EvaluateConfig) -> None:
    from poslab.commands.evaluate import run_evaluation

    run_evaluation(config)


def _explain(config: ExplainConfig) -> None:
    from poslab.commands.explain import run_explanation

    run_explanation(config)


def _generate(config: GenerateConfig) -> None:
    from poslab.commands.generate import run_generation

    run_generation(config)


def _export(config: ExportConfig) -> None:
    from poslab.commands.export import run_export

    run_export(config)


@dataclass(frozen=True)
class Command:
    purpose: str
    run: Callable[[], None]  # with the command's own arguments in sys.argv[1:]


def _of(name: str, schema: type[Schema], work: Callable[[Schema], None]) -> Command:
    return Command(str(schema.__doc__).partition("\n")[0], lambda: run_script(work, schema, name))


COMMANDS = {
    "train": Command("Train a GPT decoder whose position scheme is swappable, or with -m a sweep of them.", _train),
    "compare": _of("compare", CompareConfig, _compare),
    "evaluate": _of("evaluate", EvaluateConfig, _evaluate),
    "explain": _of("explain", ExplainConfig, _explain),
    "generate": _of("generate", GenerateConfig, _generate),
    "export": _of("export", ExportConfig, _export),
}


def main() -> None:
    """The program `poslab`: runs the command that its first argument names, or lists them all."""
    arguments = sys.argv[1:]
    with told_in_one_line(NAME, arguments, debug=False):
        name, *rest = arguments or ["--help"]
        if name in ("-h", "--help"):
            print(_help())
            return
        if name == "--version":
            print(f"{NAME} {poslab.__version__}")
            return
        if name in ("-sc", "--shell-completion") and (words := _completions()) is not None:
            print(" ".join(words))
            return
        if name in COMMANDS:
            sys.argv[1:] = rest
        elif name not in ("-sc", "--shell-completion"):  # which Hydra installs and answers, as for `train`
            if "=" in name:
                raise UserError(f"{name}: a command comes first, as in {command_line('train', *arguments)}")
            raise UserError(f"{name}: unknown command; {suggestion(name, COMMANDS)}")
    COMMANDS.get(name, COMMANDS["train"]).run()


def _help() -> str:
    width = max(map(len, COMMANDS))
    commands = "\n".join(f"  {NAME} {name:<{width}}  {command.purpose}" for name, command in COMMANDS.items())
    return (
        f"Train GPT decoders that differ only in how they know position, and compare them.\n\n{commands}\n\n"
        f"{NAME} COMMAND --help shows what each takes, {NAME} --version the version."
    )


def _completions() -> list[str] | None:
    """What a shell offers while the name of a command is typed; None once it is there and Hydra knows what follows.

    The line is prepared for Hydra, which takes the first word for the program.
    """
    program, *words = os.environ.get("COMP_LINE", "").split(" ")
    if not words or (words[0] == "train" and len(words) > 1):
        os.environ["COMP_LINE"] = " ".join([program, *words[1:]])
        return None
    return [name for name in COMMANDS if name.startswith(words[0])] if len(words) == 1 else []
