"""Convergence warnings: signs that runs were trained too briefly for their losses to be compared.

Early in training a scheme is ahead because it moves first, and may end behind. Two signs that it is early: a loss above
that of counting pairs of tokens (`poslab.data.module`), and one that still falls faster than schemes differ.
"""

import math
from collections.abc import Mapping, Sequence

from poslab.comparison.scores import Score
from poslab.runs.load import Run
from poslab.statistics.paired import Difference

COUNTED = {"bigram": "pairs of tokens", "unigram": "single tokens"}  # what models that need no training count


def shared_references(runs: Sequence[Run], score: Score) -> dict[str, float]:
    """Return the losses of models without training, by name, on the validation tokens that all these runs share.

    Empty if the score is not a loss, or if the runs lack them or differ in them.
    """
    losses = [run.summary.reference_losses for run in runs]
    return dict(losses[0]) if score.is_loss and losses and all(one == losses[0] for one in losses) else {}


def convergence_warning(
    pair: Mapping[str, Sequence[Run]], means: Mapping[str, float], difference: Difference, score: Score
) -> str:
    """Return what weakens a verdict on two groups, as the end of its sentence, or "".

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
    """Return the mean over runs of the late fall of the loss, or None if a run lacks it."""
    falls = [run.summary.late_fall for run in runs]
    known = [fall for fall in falls if fall is not None]
    return sum(known) / len(known) if known and len(known) == len(falls) else None
