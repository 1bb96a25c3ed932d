"""Make what the study data/studies/scheme-or-recipe says from its tables alone: python scripts/study.py

It prints the parts of the registered hypotheses (limits of 99.2 %, p-values not corrected), the verdicts on them (p by
Holm's method) and what is described beside them. It draws the figures of the study's page and of the front page.
"""

import sys

from seedstats.finding import p_text
from studies import described, figures, hypotheses, tables

if __name__ == "__main__":
    if sys.argv[1:]:
        sys.exit(f"error: {sys.argv[1]}: study.py has no settings; without any it prints what the study says")
    first, second = map(tables.read, ("choosing.csv.gz", "runs.csv.gz"))
    parts, verdicts = hypotheses.verdicts(first, second)
    print(parts.to_string(float_format="{:.3g}".format), verdicts.to_string(float_format=p_text), sep="\n\n")
    print("", described.report(first, second), sep="\n")
    for file, draw in figures.FILES.items():
        draw(second).savefig(tables.ROOT / file, dpi=110, metadata={"Software": None})
