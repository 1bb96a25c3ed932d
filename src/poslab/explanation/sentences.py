"""Measures of a model in words, a sentence each."""

from poslab.evaluation.probes import Probes
from poslab.explanation.measures import MASS, Ablation
from poslab.explanation.model_under_study import Findings

_SMALL = 0.01  # nats, or proportion of right answers: less is called nothing


def sentences(findings: Findings) -> list[str]:
    """Return the measures in words, each beginning with what it shows."""
    model, probe_data = findings.study.model, findings.study.probe_data
    known = model.pos.max_length(model.shape)
    longest = model.shape.training_length if probe_data is None else probe_data.longest
    text = [
        f"It is defined at any position. In training it read at most {longest:,} tokens, and anything longer is "
        "extrapolation."
        if known is None
        else f"It has {known:,} positions, 0 to {known - 1:,}: a longer text can't be read in one piece."
    ]
    if findings.measured is not None:
        text.append(_reach(sorted(findings.measured.reach.flatten().tolist()), findings.measured.even_reach))
    if findings.probes is not None:
        text += [_induction(findings.probes), _position(findings.probes)]
    if findings.retrieved is not None:
        low, high = (f"{float(share):.0%}" for share in findings.retrieved.gates.aminmax())
        verb = "hardly retrieves" if float(findings.retrieved.gates.max()) < _HARDLY else "retrieves"
        text.append(
            f"Layer {findings.retrieved.layer} {verb}: of its heads' output, {low} to {high} come from before the "
            f"segment. Half of that attention lies more than {findings.retrieved.median_distance:,} tokens back."
        )
    if findings.ablations:
        text += [_until(findings.ablations[name], *words) for name, words in _USES.items()]
        if any(findings.ablations["shift"].sizes):  # because a scheme may have no further positions
            text.append(_moved(findings.ablations["shift"]))
    return text


_HARDLY = 0.05  # of a head's output
# What an ablation shows where the model gets worse, better, or neither; and how the text was changed.
_USES = {
    "truncate": (
        "It uses tokens from far back",
        "Tokens from far back do harm",
        "It makes no use of tokens from far back",
        "if only the last n tokens are left",
    ),
    "shuffle": (
        "It uses the order of tokens far back",
        "The order of tokens far back does harm",
        "It makes no use of the order of tokens far back",
        "if all but the last n tokens come in a random order",
    ),
}


def _reach(reach: list[int], even: int) -> str:
    """reach: of each head, in ascending order; even: that of attention to all keys alike."""
    verdict = "Some heads look nearby" if 2 * reach[0] < even else "No head keeps to what is near"
    tokens = f"{reach[0]} token{'s' * (reach[0] != 1)}"
    return (
        f"{verdict}: of {len(reach)} heads, the narrowest has {MASS:.0%} of its attention within {tokens}, the "
        f"middle one within {reach[len(reach) // 2]}, the widest within {reach[-1]}. Spread evenly, it would be {even}."
    )


def _induction(probes: Probes) -> str:
    heads, even = probes.heads["induction"], probes.even["induction"]
    (layer, head), share = divmod(int(heads.argmax()), heads.shape[1]), float(heads.max())
    found = share > 2 * even
    who, has = (f"Head {head} of layer {layer}", "it has") if found else ("No head", "none has more than")
    return (
        f"{who} continues what it has read before (induction): where random tokens are repeated, {has} {share:.0%} of "
        f"its attention on what followed the earlier copies of a token. Spread evenly, it would be {even:.0%}."
    )


def _position(probes: Probes) -> str:
    error, layer = float(probes.errors.min()), int(probes.errors.argmin())
    ways = {0.5: "reads", 0.9: "reads only roughly"}  # by the share of the guess's error that is left
    verb = next((way for share, way in ways.items() if error < share * probes.middle), "cannot read")
    return (
        f"A linear probe {verb} the position from the hidden states: its error is {error:.1f} tokens at best (layer "
        f"{layer}), guessing the middle gives {probes.middle:.1f}."
    )


def _until(ablation: Ablation, worse: str, better: str, neither: str, change: str) -> str:
    """Return how much a change matters, and from which size on it doesn't, in words."""
    changed = _changed(ablation)
    if not changed:
        return f"{neither}: {change}, no difference shows, even with n = {ablation.sizes[0]}."
    first, last = changed[0], changed[-1]
    largest = max(changed, key=lambda n: abs(float(ablation.differences[n])))
    loses = (float(ablation.differences[largest]) > 0) != ablation.exact
    text = f"{worse if loses else better}: {change}, {_amount(ablation, first)} with n = {ablation.sizes[first]}"
    if last > first:
        text += f", and {_amount(ablation, last)} with n = {ablation.sizes[last]}"
    beyond = "" if last + 1 == len(ablation.sizes) else f"; from n = {ablation.sizes[last + 1]} on no difference shows"
    return f"{text}{beyond}."


def _moved(ablation: Ablation) -> str:
    if float(ablation.differences.abs().max()) < 1e-3:
        return "Only distances count: if all positions are moved, nothing changes, as far as these questions can tell."
    changed = _changed(ablation)
    if not changed:
        return "Distances count, and places hardly: if all positions are moved, no difference shows."
    offset, amount = ablation.sizes[changed[0]], _amount(ablation, changed[0])
    return f"It knows places, not distances alone: if all positions are moved by {offset}, {amount}."


def _changed(ablation: Ablation) -> list[int]:
    """Return the indices of differences above three standard errors: of many sizes one is at two by chance."""
    found = zip(ablation.differences.abs().tolist(), ablation.errors.tolist(), strict=True)
    return [n for n, (difference, error) in enumerate(found) if difference > max(_SMALL, 3 * error)]


def _amount(ablation: Ablation, n: int) -> str:
    difference, error = float(ablation.differences[n]), 2 * float(ablation.errors[n])
    if ablation.exact:
        return f"it gets {abs(difference):.0%} {'more' if difference > 0 else 'fewer'} right (± {error:.0%})"
    return f"its loss is {abs(difference):.2f} {'higher' if difference > 0 else 'lower'} (± {error:.2f})"
