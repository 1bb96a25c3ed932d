"""Reproduction of runs: commands, complete settings, and the facts of data, machine and code."""

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from poslab.config.command_line import command_line
from poslab.config.fields import NOT_REPEATED, Role
from poslab.config.groups import role_of
from poslab.runs.load import Run
from seedstats.page.blocks import Block, Code, Definitions, Details, Heading

NOT_RECORDED = "not recorded"


def command_of(runs: Sequence[Run]) -> str:
    """Return the command that repeats the runs of a group: the one typed for one of its runs, with the seeds of all.

    No single command repeats runs that were extended.
    """
    recorded = [run.config.get("overrides") for run in runs]
    words = next((overrides for overrides in recorded if isinstance(overrides, list)), None)
    if words is None or any(run.config.get("extended") for run in runs):
        return NOT_RECORDED
    names = {str(override): str(override).lstrip("+~").partition("=")[0] for override in words}
    settings = [override for override, name in names.items() if role_of(name) not in NOT_REPEATED | {Role.SEED}]
    many = ["-m"] if len(runs) > 1 else []
    seeds = ",".join(str(run.seed) for run in runs)
    return command_line("train", *many, *settings, f"seed={seeds}")


def configurations(runs: Mapping[str, Sequence[Run]]) -> list[tuple[str, str]]:
    """Return (owner, yaml) pairs: each scheme's settings, and all others, once where they are equal."""
    schemes: dict[str, Any] = {}
    others: dict[str, list[str]] = {}
    without = NOT_REPEATED | {Role.SEED, Role.SCHEME}
    for label, group_runs in runs.items():
        shown = {key: value for key, value in group_runs[0].config.items() if role_of(key) not in without}
        schemes[label] = shown.pop("pos")
        others.setdefault(_yaml(shown), []).append(label)
    shared = [("all others" if len(others) == 1 else f"others, {', '.join(of)}", text) for text, of in others.items()]
    return [("of the schemes", _yaml(schemes)), *shared]


def facts(runs: Sequence[Run]) -> dict[str, str]:
    """Return facts that all runs have in common, or the values that they have."""

    def all_of(key: str) -> str:
        values = [getattr(run.summary, key) for run in runs]
        return " or ".join(dict.fromkeys(f"{v:,}" if isinstance(v, int) else str(v or "unknown") for v in values))

    packages = dict.fromkeys(name for run in runs for name in run.summary.versions)
    versions = {name: dict.fromkeys(str(run.summary.versions.get(name)) for run in runs) for name in packages}
    test = f", {all_of('test_tokens')} test tokens" if any(run.summary.test_tokens for run in runs) else ""
    data = {
        "text": f"{all_of('data')}, {all_of('train_tokens')} training tokens and "
        f"{all_of('validation_tokens')} validation tokens{test}",
        "sha256 of the text": all_of("data_sha256"),
    }
    reach = "trained to"
    if not any(run.text_path for run in runs):
        reach = "a context of"
        data = {"task": f"{all_of('data')}, lengths of training up to {all_of('training_length')}"}
        data["sha256 of the task"] = all_of("data_sha256")
    begun = dict.fromkeys((run.summary.init_from, run.summary.init_sha256) for run in runs if run.summary.init_from)
    if begun:
        data["weights"] = "begin with " + ", ".join(f"{path} (sha256 {str(sha256)[:12]})" for path, sha256 in begun)
    return data | {
        "vocabulary": f"{all_of('vocabulary')}, {all_of('vocabulary_size')} tokens",
        "model": f"{all_of('params_trunk')} parameters without positions, {reach} {all_of('context_length')} tokens",
        "training": f"{all_of('steps')} steps",
        "device": f"{all_of('device')}, {all_of('threads')} threads",
        "code": f"git commit {all_of('git_commit')}, fingerprint {all_of('code_fingerprint')}",
        "packages": ", ".join(f"{name} {' or '.join(numbers)}" for name, numbers in versions.items()),
    }


def sources(runs: Mapping[str, Sequence[Run]]) -> list[Block]:
    """Return how to repeat runs, by the label of their group, and the facts of data, machine and code."""
    all_runs = [run for group_runs in runs.values() for run in group_runs]
    commands = {label: command_of(group_runs) for label, group_runs in runs.items()}
    lines = [f"{label}: {text}" if text == NOT_RECORDED else text for label, text in commands.items()]
    settings = [Details(f"complete settings: {whose}", [Code(text)]) for whose, text in configurations(runs)]
    folders = Details(f"{len(all_runs)} runs", [Code("\n".join(str(run.folder) for run in all_runs))])
    return [
        Heading("To repeat it", [Code("\n".join(lines)), *settings]),
        Heading("Data and versions", [Definitions(facts(all_runs)), folders]),
    ]


def _yaml(content: dict[str, Any]) -> str:
    return str(yaml.safe_dump(content, sort_keys=False, allow_unicode=True))
