"""Do the steps of the study "scheme or recipe?": `python scripts/study.py`, and `--help` for its settings."""

import sys
from dataclasses import dataclass
from pathlib import Path

from poslab.commands.cli import plain_command, run_program
from poslab.config.fields import Limited, setting
from poslab.errors import UserError


@dataclass
class StudyConfig(Limited):
    """Keep the tables of the study data/studies/scheme-or-recipe, choose its recipes and test its hypotheses.

    Examples
      python scripts/study.py add=runs/study/choosing       complete seeds of a sweep join the tables
      python scripts/study.py choose=true                   recipes from the first stage; writes the second
      python scripts/study.py verdicts=true                 H1 to H6, from the tables alone
      python scripts/study.py described=true                what is described beside them, from the tables alone
      python scripts/study.py page=true                     the figure, and choose.md for someone who has to pick
    """

    add: list[str] = setting([], help="folders of sweeps, whose complete seeds join the tables")
    choose: bool = setting(False, help="chooses recipes from the first stage, and writes the experiments of the second")
    verdicts: bool = setting(False, help="tests the hypotheses; before all seeds are there, shows what is")
    final: bool = setting(False, help="tests with the seeds that are there: no more will come")
    described: bool = setting(False, help="tau where the recipe does nothing, and more that wasn't registered")
    page: bool = setting(False, help="writes figure.png, choose.csv and choose.md: quality, cost, limits")
    folder: str = setting("data/studies/scheme-or-recipe", help="where the tables are")


def main(config: StudyConfig, typed: str) -> None:
    from studies import choice, described, figure, hypotheses, recipes, tables  # after the checks

    folder = Path(config.folder)
    if not (config.add or config.choose or config.verdicts or config.described or config.page):
        raise UserError("nothing to do: add=FOLDER, choose=true, verdicts=true, described=true or page=true")
    for line in tables.add(config.add, folder, recipes.read_chosen(folder)):
        print(line)
    first, second = (tables.read(folder / file) for file in tables.FILES.values())
    if config.choose:
        chosen = recipes.write_chosen(first, folder, {*second["data"]})
        print(f"{len(chosen)} recipes in {folder / recipes.FILE}, and the experiments of the second stage")
    if config.verdicts:
        print(hypotheses.report(hypotheses.verdicts(first, second, config.final), second))
    if config.described:
        print(described.report(second, recipes.read_chosen(folder)))
    if config.page:
        if lacking := {*tables.TASKS, *tables.TEXTS} - {*second["data"]}:
            raise UserError(f"page=true: of {', '.join(sorted(lacking))} there is no complete seed yet")
        print(figure.write_figure(second, folder))
        print(choice.write_choice(second, recipes.read_chosen(folder), folder))


if __name__ == "__main__":
    run_program(plain_command("study", StudyConfig, main).run, sys.argv[1:])
