"""Make what a study's page says from the study's tables alone: `python scripts/study.py [scheme-or-recipe | blocks]`.

scheme-or-recipe: prints the parts of its hypotheses (limits of 99.2 %, p-values not corrected), the verdicts on them (p
by Holm's method) and what is described beside them; draws its figures. blocks: its learning rates, and its figure.
"""

import sys

from seedstats.finding import p_text
from studies import blocks, described, figures, hypotheses, tables


def scheme_or_recipe() -> None:
    first, second = map(tables.read, ("choosing.csv.gz", "runs.csv.gz"))
    parts, verdicts = hypotheses.verdicts(first, second)
    tested = parts.to_string(float_format="{:.3g}".format), verdicts.to_string(float_format=p_text)
    print(*tested, described.report(first, second), sep="\n\n")
    figures.recipes(second).savefig(tables.FOLDER / "figure.png", dpi=110, metadata={"Software": None})
    figures.lengths(second).savefig(tables.ROOT / ".github/pictures/length.png", dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    studies = {"scheme-or-recipe": scheme_or_recipe, "blocks": blocks.main}
    named = " ".join(sys.argv[1:]) or "scheme-or-recipe"
    if named not in studies:
        sys.exit(f"error: {named} is no study; valid: {', '.join(studies)}")
    studies[named]()
