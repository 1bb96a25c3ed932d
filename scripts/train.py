"""Train a GPT decoder: `python scripts/train.py pos=t5`, and `--help` for everything else."""

import sys

from omegaconf import DictConfig

from poslab.commands.cli import given_overrides, run_script, swept_overrides
from poslab.runs.resume import resumed
from poslab.settings.composed import scheme_name
from poslab.settings.train import parse

TEXT = "sample.prompt"  # taken as it is typed


def main(config: DictConfig) -> None:
    overrides = swept_overrides(TEXT)
    if overrides is not None:
        from poslab.sweep import run_job

        run_job(parse(config, scheme_name()), overrides)
        return
    again = config.resume is not None
    checked = resumed(config, given_overrides()) if again else parse(config, scheme_name())
    print("loading torch and Lightning ...", flush=True)
    from poslab.training import train  # after the checks, which need neither

    train(checked)


if __name__ == "__main__":
    if "--info" in sys.argv[1:]:
        from poslab.commands.info import print_info  # loads torch

        print_info()
        sys.exit()
    run_script(main, "train", text=TEXT, sweeps=True)
