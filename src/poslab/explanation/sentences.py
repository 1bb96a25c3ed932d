"""Measures of a model in words, a sentence each."""

from dataclasses import dataclass

from poslab.evaluation.probes import Probes
from poslab.explanation.measures import MASS, Ablation, Sharpest
from poslab.explanation.model_under_study import Findings
from poslab.metric import EXACT

_SMALL = 0.01  # nats, or proportion of right answers: less is called nothing
_LARGE = {False: 0.05, True: 0.1}  # nats, and proportion: a model without position is shown to lose less than this


@dataclass(frozen=True)
class Sentences:
    """Sentences on one model. answer: what the page begins with. warning: that it makes no use of position, or nothing.
    others: by the name of what is measured."""

    answer: str
    warning: str
    others: dict[str, str]


def sentences(findings: Findings) -> Sentences:
    """Return the measures in words, each beginning with what it shows."""
    measured, ablations = findings.measured, findings.ablations
    answer = []
    if ablations:
        # The unchanged questions are those with all tokens left.
        unchanged = ablations["truncate"]
        value = float(unchanged.values[-1])
        right, loss = f"{value:.0%} of its answers are right.", f"Its loss is {value:.2f} nats per token."
        answer.append(right if unchanged.exact else loss)
    elif not findings.study.trained:
        answer.append("Not trained: this is what it computes before its first step.")
    if measured is not None:
        answer.append(_sharpest(measured.sharpest))
    warning = ""
    if ablations and not uses_position(ablations):
        change = "if all tokens but the last come in a random order"
        warning = f"This model makes no use of position: {change}, {_unchanged(ablations['shuffle'])}."
    return Sentences(" ".join(answer) or _range(findings), warning, _others(findings))


def uses_position(ablations: dict[str, Ablation]) -> bool:
    """Return False where neither the order of the tokens before nor their places are of use: where shuffling all but
    the last, or moving all, is shown to change next to nothing."""
    shuffled, moved = ablations["shuffle"], ablations["shift"]
    most = float(shuffled.differences[0].abs() + 3 * shuffled.errors[0])
    return most > _LARGE[shuffled.exact] or bool(_changed(moved))


def _others(findings: Findings) -> dict[str, str]:
    text = {"range": _range(findings)}
    if findings.measured is not None:
        text["reach"] = _reach(sorted(findings.measured.reach.flatten().tolist()), findings.measured.even_reach)
    if findings.probes is not None:
        text |= {"heads": _induction(findings.probes), "position": _position(findings.probes)}
    exact = findings.by_length.get(EXACT.name)
    if exact:
        shares = ", ".join(f"{share:.0%} at {length}" for length, share in exact.items())
        trained = findings.study.model.shape.training_length
        text["exact"] = f"Examples without an error, by length: {shares}. Training ended at {trained}."
    if findings.retrieved is not None:
        low, high = (f"{float(share):.0%}" for share in findings.retrieved.gates.aminmax())
        verb = "hardly retrieves" if float(findings.retrieved.gates.max()) < _HARDLY else "retrieves"
        text["retrieved"] = (
            f"Layer {findings.retrieved.layer} {verb}: of its heads' output, {low} to {high} come from before the "
            f"segment. Half of that attention lies more than {findings.retrieved.median_distance:,} tokens back."
        )
    if findings.ablations:
        text |= {name: _until(findings.ablations[name], *words) for name, words in _USES.items()}
        if any(findings.ablations["shift"].sizes):  # because a scheme may have no further positions
            text["shift"] = _moved(findings.ablations["shift"])
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


def _sharpest(head: Sharpest) -> str:
    """Return the sentence on the head that looks most at one distance."""
    if head.distance == 0:
        where = "the token itself"
    else:
        where = f"the token {head.distance} back" if head.distance > 1 else "the token before"
    if head.weight > max(0.2, 3 * head.even):
        return f"Head {head.head} of layer {head.layer} has {head.weight:.0%} of its attention on {where}."
    most = f"none has more than {head.weight:.0%} of its attention at one, on {where}"
    return f"No head keeps to a distance: {most}; spread evenly, it would be {head.even:.0%}."


def _unchanged(ablation: Ablation) -> str:
    difference, error = float(ablation.differences[0]), 2 * float(ablation.errors[0])
    if ablation.exact:
        return f"as many of its answers are right ({difference:+.0%} ± {error:.0%})"
    return f"its loss is the same ({difference:+.2f} ± {error:.2f} nats)"


def _range(findings: Findings) -> str:
    model, probe_data = findings.study.model, findings.study.probe_data
    positions = model.pos.max_length(model.shape)
    if positions is not None:
        return f"It has {positions:,} positions, 0 to {positions - 1:,}: a longer text can't be read in one piece."
    longest = model.shape.training_length if probe_data is None else probe_data.longest
    return f"It is defined at any position. In training it read at most {longest:,} tokens; longer is extrapolation."


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
    is_induction_head = share > 2 * even
    who, has = (f"Head {head} of layer {layer}", "it has") if is_induction_head else ("No head", "none has more than")
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
        return (
            "Absolute places don't count: if all positions are moved, nothing changes, as far as these questions tell."
        )
    changed = _changed(ablation)
    if not changed:
        return "Absolute places hardly count: if all positions are moved, no difference shows."
    offset, amount = ablation.sizes[changed[0]], _amount(ablation, changed[0])
    return f"It knows absolute places, not distances alone: if all positions are moved by {offset}, {amount}."


def _changed(ablation: Ablation) -> list[int]:
    """Return the indices of differences above three standard errors: of many sizes one is at two by chance."""
    pairs = zip(ablation.differences.abs().tolist(), ablation.errors.tolist(), strict=True)
    return [n for n, (difference, error) in enumerate(pairs) if difference > max(_SMALL, 3 * error)]


def _amount(ablation: Ablation, n: int) -> str:
    difference, error = float(ablation.differences[n]), 2 * float(ablation.errors[n])
    if ablation.exact:
        more = "more" if difference > 0 else "fewer"
        return f"of 100 answers it gets {abs(difference) * 100:.0f} {more} right (± {error * 100:.0f})"
    return f"its loss is {abs(difference):.2f} {'higher' if difference > 0 else 'lower'} (± {error:.2f})"
