"""Command `check`: the contract of position schemes, tried on one scheme and each of its variants, in a block of which
parts may be one's own."""

from collections import Counter

from poslab.config.nodes import TARGET, shown, with_settings
from poslab.config.parts import module_node
from poslab.config.schemes import node_of, parse_scheme
from poslab.config.scripts import CheckConfig
from poslab.contract.checks import CHECKS
from poslab.contract.trial import outcome
from poslab.errors import RunStopped, as_typed


def run_check(config: CheckConfig) -> None:
    """Print a line for each part of the contract.

    Raises RunStopped, and thus exits with code 1, where a part differs, or with `strict` where one can't be tried.
    """
    scheme, counts = parse_scheme(with_settings({}, config.pos)), Counter[str]()
    block = {part: module_node(node, f"model.{part}") for part, node in config.block.items()}
    name, settings = config.pos[TARGET], {key: value for key, value in config.pos.items() if key != TARGET}
    in_block = [f"{setting}={as_typed(value)}" for setting, value in shown(block).items()]
    for tried in ({}, *(() if block else scheme.variants)):
        print(name, *in_block, *(f"pos.{key}={as_typed(value)}" for key, value in (settings | tried).items()))
        for what, check in CHECKS.items():
            result, words = outcome(check, parse_scheme(node_of(scheme) | tried), **block)
            counts[result] += 1
            print(f"{what:22}{result}{': ' if words else ''}{words}", flush=True)
            if what == "hooks" and result == "differs":
                print("The other parts of the contract are tried once no hook differs.")
                break
        print()
    if counts["differs"]:
        count, verb = ("1 part", "differs") if counts["differs"] == 1 else (f"{counts['differs']} parts", "differ")
        raise RunStopped(f"{name}: {count} of the contract {verb}")
    if config.strict and counts["not tried"]:
        count, verb = ("1 part", "was") if counts["not tried"] == 1 else (f"{counts['not tried']} parts", "were")
        raise RunStopped(f"{name}: {count} of the contract {verb} not tried (strict=true)")
