"""Train a GPT decoder: `python scripts/train.py pos=t5`, and `--help` for everything else."""

from omegaconf import DictConfig

from poslab.cli import run_script, scheme_name, swept_overrides
from poslab.config import parse

TEXT = "sample.prompt"  # taken as it is typed


def main(config: DictConfig) -> None:
    checked = parse(config, scheme_name())
    overrides = swept_overrides(TEXT)
    if overrides is not None:
        from poslab.sweep import run_job

        run_job(checked, overrides)
        return
    print("loading torch and Lightning ...", flush=True)
    from poslab.training import train  # after the checks, which need neither

    train(checked)


if __name__ == "__main__":
    run_script(main, "train", text=TEXT)
