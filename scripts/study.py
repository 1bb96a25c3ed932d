"""Make what a study's page says from the study's tables alone.

    python scripts/study.py                            scheme-or-recipe: tests of its hypotheses, and its figures
    python scripts/study.py blocks                     blocks: its learning rates, and its figure
    python scripts/study.py blocks runs results.csv    the same, after adding what a comparison has written

Of hypotheses it prints the parts (limits of 99.2 %, p-values not corrected), the verdicts on them (p by Holm's method)
and what is described beside them.
"""

import sys

from seedstats.finding import p_text
from studies import blocks, described, figures, hypotheses, tables


def scheme_or_recipe() -> None:
    first, second = map(tables.read, ("choosing.csv.gz", "runs.csv.gz"))
    parts, verdicts = hypotheses.verdicts(first, second)
    print(parts.to_string(float_format="{:.3g}".format), verdicts.to_string(float_format=p_text), sep="\n\n")
    print("", described.report(first, second), sep="\n")
    for file, draw in figures.FILES.items():
        draw(second).savefig(tables.ROOT / file, dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            scheme_or_recipe()
        case ["blocks"] | ["blocks", "choosing" | "runs" | "ladder", _]:
            blocks.main(*sys.argv[2:])
        case others:
            sys.exit(f"error: {' '.join(others)}: the commands are those that the head of study.py lists")
