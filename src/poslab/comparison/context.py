"""Value of context: the loss by memory length, and the relative effective context length.

Dai et al. 2019, "Transformer-XL", section 4.4 and appendix C. With l_i(c, t) the loss of model i on token t with a
context of c tokens, and b(c, t) = min_i l_i(c, t), going from c to a longer c' gains what is better than any model was:

    f_i(c, c') = mean over t of min(b(c, t), l_i(c', t))     g_i(c, c') = 1 - exp(f_i(c, c')) / exp(f_i(c, c))

t: the share r of all tokens for which b(c, t) is highest. The length is the first c from which the next one gains less
than 1 %. The paper's c' is c + a fixed step; here lengths are those of windows whose last tokens are the same at every
length, and double. Models that are compared are the runs of one seed.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from poslab.comparison.compare import Comparison
from poslab.report.blocks import Table
from poslab.runs.evaluation import Evaluation, last_targets
from poslab.statistics.intervals import estimate

LEAST_GAIN = 0.01
SHARES = (0.1, 0.5, 1.0)  # r, as in the paper

Losses = Mapping[int, "np.ndarray[Any, np.dtype[np.float64]]"]  # of the same tokens, by the length of the context


def context_tables(comparison: Comparison, evaluations: Mapping[str, list[Evaluation]]) -> list[Table]:
    """Return the tables on memory and context, if runs have memory or differ in context.

    evaluations: by label, one per run.
    """
    models = [run.config.get("model", {}) for run in comparison.runs]
    remembers = any(model.get("memory_length") or model.get("retrieval") for model in models)
    if not remembers and len({run.summary.context_length for run in comparison.runs}) < 2:
        return []
    seeds = {group.label: [run.seed for run in group.runs] for group in comparison.groups}
    by_seed = {label: dict(zip(seeds[label], of, strict=True)) for label, of in evaluations.items()}
    return [table for table in (_by_memory(evaluations), _effective_lengths(by_seed)) if table]


def _by_memory(evaluations: Mapping[str, list[Evaluation]]) -> Table | None:
    """Return the table of losses by memory length, of groups whose runs are all measured with a memory."""
    lengths = sorted({int(n) for of_seeds in evaluations.values() for e in of_seeds for n in e.memory_losses})
    rows = []
    for label, of_seeds in evaluations.items():
        cells = [_mean([e.memory_losses.get(str(length)) for e in of_seeds]) for length in lengths]
        if any(cell != "n/a" for cell in cells):
            rows.append([label, str(len(of_seeds)), *cells])
    if not rows:
        return None
    remark = (
        "Mean loss of contiguous windows of the training length, in nats, of the same tokens for every memory length; "
        "means over seeds, with 95 % intervals. Retrieval is not counted in that length."
    )
    return Table("Loss by memory", ["scheme", "n", *(f"{length:,} tokens" for length in lengths)], rows, remark)


def _mean(losses: Sequence[float | None]) -> str:
    known = [loss for loss in losses if loss is not None]
    if len(known) < len(losses):
        return "n/a"
    found = estimate(known)
    half = f" \u00b1 {found.interval.high - found.mean:.4f}" if found.interval else ""
    return f"{found.mean:.4f}{half}"


def _effective_lengths(evaluations: Mapping[str, Mapping[int, Evaluation]]) -> Table | None:
    """Return the table of relative effective context lengths, over the seeds that all groups have, by label and seed;
    None if there are none, or the runs of one have fewer than two lengths in common."""
    seeds = set.intersection(*map(set, evaluations.values())) if evaluations else set()
    losses = [common_losses({label: of_seed[seed] for label, of_seed in evaluations.items()}) for seed in sorted(seeds)]
    if not losses or any(len(of_label) < 2 for of_seed in losses for of_label in of_seed.values()):
        return None
    rows = []
    for label in evaluations:
        found = [[effective_length(of[label], [*of.values()], share) for share in SHARES] for of in losses]
        rows.append([label, str(len(losses)), *(f"{mean:,.0f}" for mean in np.mean(found, axis=0))])
    tried = ", ".join(f"{length:,}" for length in losses[-1][label])
    remark = (
        "Up to which length more context makes a model better than all of them were with less, by at least 1 % of the "
        "perplexity from one length to the next (Dai et al. 2019, appendix C), of the share r of the tokens that are "
        f"hardest with less; means over seeds. Lengths measured: {tried}. It depends on which models are compared."
    )
    columns = ["scheme", "n", *(f"r = {share:g}" for share in SHARES)]
    return Table("Relative effective context length", columns, rows, remark)


def common_losses(evaluations: Mapping[str, Evaluation]) -> dict[str, Losses]:
    """Return by label the losses of the tokens and at the lengths that all evaluations have."""
    places, losses = {}, {}
    for label, evaluation in evaluations.items():
        last = next((result.last for result in evaluation.lengths if result.last_losses), None)
        places[label] = last_targets(evaluation, last) if last else []
        known = {result.length: result.last_losses or [] for result in evaluation.lengths}
        losses[label] = {length: of_it for length, of_it in known.items() if len(of_it) == len(places[label])}
    shared = sorted(set.intersection(*map(set, places.values()))) if places else []
    lengths = sorted(set.intersection(*map(set, losses.values()))) if shared else []
    chosen = {label: np.searchsorted(np.array(of_text), shared) for label, of_text in places.items()}
    return {label: {n: np.array(losses[label][n])[chosen[label]] for n in lengths} for label in losses}


def effective_length(own: Losses, of_all: Sequence[Losses], share: float) -> int:
    """Return the relative effective context length of one of several models, whose losses have the same lengths."""
    for short, long in pairwise(sorted(own)):
        best = np.min([losses[short] for losses in of_all], axis=0)
        hardest = np.argsort(-best, kind="stable")[: max(1, round(share * len(best)))]
        before, after = (np.minimum(best, own[length])[hardest].mean() for length in (short, long))
        if 1 - math.exp(after - before) < LEAST_GAIN:
            return short
    return max(own)
