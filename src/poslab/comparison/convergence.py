"""Whether runs were trained for long enough that a difference between their losses means anything.

Early in training a scheme is ahead because it moves first, and may end behind. Two signs that it is early: a loss above
that of counting pairs of tokens (`poslab.data.ngram_baselines`), and one that still falls faster than schemes differ.
"""

import math
from collections.abc import Mapping, Sequence

from poslab.comparison.scores import Score
from poslab.comparison.statistics import Difference
from poslab.runs.load import Run

COUNTED = {"bigram": "pairs of tokens", "unigram": "single tokens"}  # what models that need no training count


def shared_references(runs: Sequence[Run], score: Score) -> dict[str, float]:
    """The losses of models that need no training, by name, on the tokens that all these runs are judged by; empty
    where the score is no loss, or the runs don't say, or not the same."""
    first = runs[0].summary.reference_losses
    return dict(first) if score.is_loss and all(run.summary.reference_losses == first for run in runs) else {}


def convergence_warning(
    pair: Mapping[str, Sequence[Run]], means: Mapping[str, float], difference: Difference, score: Score
) -> str:
    """What weakens a verdict on two groups, as the end of its sentence; empty where nothing does.

    pair, means: the runs and the mean loss of either, by label.
    """
    runs = [run for of_group in pair.values() for run in of_group]
    references = shared_references(runs, score)
    parts = []
    early = [label for label, mean in means.items() if mean > references.get("bigram", math.inf)]
    if early:
        whose = f"{early[0]}'s loss is" if len(early) == 1 else "both losses are"
        least = min(means[label] for label in early)
        name = max((name for name in COUNTED if references.get(name, math.inf) < least), key=references.__getitem__)
        parts.append(f"{whose} above that of counting {COUNTED[name]} ({references[name]:.4f}): hardly trained")
    if score.is_loss and difference.significant:
        falls = {label: _late_fall(of_group) or 0.0 for label, of_group in pair.items()}
        falling = [f"{label}'s (by {fall:.2g})" for label, fall in falls.items() if fall > abs(difference.mean or 0.0)]
        if falling:
            losses = f"loss{'es' * (len(falling) > 1)}"
            parts.append(
                f"{' and '.join(falling)} {losses} still fell by more than that in the last tenth of the steps"
            )
    return "".join(f"; {part}" for part in parts)


def _late_fall(runs: Sequence[Run]) -> float | None:
    """The mean over runs; None where one doesn't say."""
    falls = [run.summary.late_fall for run in runs]
    known = [fall for fall in falls if fall is not None]
    return sum(known) / len(known) if known and len(known) == len(falls) else None
