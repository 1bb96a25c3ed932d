"""Measures of a model in words, a sentence each."""

from dataclasses import dataclass
from typing import NamedTuple

from poslab.evaluation.probes import Probes
from poslab.explanation.measures import MASS, Ablation, AttentionMeasures, Sharpest
from poslab.explanation.model_under_study import Findings
from poslab.metric import ACCURACY, EXACT
from poslab.positions.base import knows_nothing

_SMALL = 0.01  # nats, or proportion of right answers: less is called nothing
_LARGE = {False: 0.05, True: 0.1}  # nats, and proportion: a model without position is shown to lose less than this


@dataclass(frozen=True)
class Sentences:
    """Sentences on one model. answer: what the page begins with. warning: that it makes no use of position, or nothing.
    reason: why it can't, or nothing. others: by the name of what is measured."""

    answer: str
    warning: str
    reason: str
    others: dict[str, str]


def sentences(findings: Findings) -> Sentences:
    """Return the measures in words, each beginning with what it shows."""
    measured, ablations = findings.measured, findings.ablations
    answer = []
    if ablations:
        # The unchanged questions are those with all tokens left.
        unchanged = ablations["truncate"]
        value = float(unchanged.values[-1])
        if unchanged.exact:
            answer.append(f"{value:.0%} of its answers are right{_guessing(findings)}.")
        else:
            answer.append(f"Its loss is {value:.2f} nats per token{_on_how_many(findings)}.")
    elif not findings.study.trained:
        answer.append("Not trained: this is what it computes before its first step.")
    if measured is not None:
        answer.append(_sharpest(measured.sharpest, measured.reach.numel()))
    warning = ""
    if ablations and not uses_position(ablations):
        change = "if all tokens but the last come in a random order"
        warning = f"This model makes no use of position: {change}, {_unchanged(ablations['shuffle'])}."
    return Sentences(" ".join(answer) or _range(findings), warning, _reason(findings), _others(findings))


def _guessing(findings: Findings) -> str:
    """Return what the best answer without a look at the question gives, nearest to the length of the questions."""
    chance = findings.by_length.get(f"{ACCURACY.name}_chance")
    if not chance:
        return ""
    trained = findings.study.model.shape.training_length
    nearest = min(chance, key=lambda length: abs(int(length) - trained))
    return f" (guessing: {chance[nearest]:.0%})"


def _on_how_many(findings: Findings) -> str:
    """Return the number of questions and, as these are few, the loss of the run's own validation."""
    probe_data, whole = findings.study.probe_data, findings.study.validation_loss
    if probe_data is None:
        return ""
    count = sum(len(batch.tokens) for batch in probe_data.questions)
    return f" on {count:,} tokens" + ("" if whole is None else f" ({whole:.2f} on the whole validation part)")


def _reason(findings: Findings) -> str:
    """Return why a model can't know the order of its text, where that is so by construction."""
    model = findings.study.model
    if model.shape.num_layers > 1 or not knows_nothing(model.pos):
        return ""
    return (
        "Without a positional encoding, one layer sees which tokens came before, but not in which order: it can only "
        "guess among them. From a second layer on, a causal mask lets order show."
    )


def uses_position(ablations: dict[str, Ablation]) -> bool:
    """Return False where neither the order of the tokens before nor their places are of use: where shuffling all but
    the last, or moving all, is shown to change next to nothing."""
    shuffled, moved = ablations["shuffle"], ablations["shift"]
    most = float(shuffled.differences[0].abs() + 3 * shuffled.errors[0])
    return most > _LARGE[shuffled.exact] or bool(_changed(moved))


def _others(findings: Findings) -> dict[str, str]:
    text = {"range": _range(findings)}
    if findings.measured is not None:
        text["reach"] = _reach(findings.measured)
    if findings.probes is not None:
        text |= {"heads": _induction(findings.probes), "position": _position(findings.probes)}
    exact = findings.by_length.get(EXACT.name)
    if exact:
        shares = ", ".join(f"{share:.0%} at {length}" for length, share in exact.items())
        trained = findings.study.model.shape.training_length
        text["exact"] = f"Examples with every answer right, by length: {shares}. Training ended at {trained}."
    if findings.retrieved is not None:
        low, high = (f"{float(share):.0%}" for share in findings.retrieved.gates.aminmax())
        verb = "hardly retrieves" if float(findings.retrieved.gates.max()) < _HARDLY else "retrieves"
        text["retrieved"] = (
            f"Layer {findings.retrieved.layer} {verb}: of its heads' output, {low} to {high} come from before the "
            f"segment. Half of that attention lies more than {findings.retrieved.median_distance:,} tokens back."
        )
    if findings.ablations:
        text |= {name: _until(findings.ablations[name], use) for name, use in _USES.items()}
        if any(findings.ablations["shift"].sizes):  # because a scheme may have no further positions
            text["shift"] = _moved(findings.ablations["shift"])
    return text


_HARDLY = 0.05  # of a head's output


class _Use(NamedTuple):
    """Claims on a change of the text. enough: where its last n tokens suffice; far: where most of it is needed; harm:
    where the model is better for the change; none: where nothing shows. change: how the text was changed."""

    enough: str
    far: str
    harm: str
    none: str
    change: str


_USES = {
    "truncate": _Use(
        "It needs no more than the last {} tokens",
        "It uses tokens from far back",
        "Tokens farther back do harm",
        "It makes no use of tokens before the last",
        "if only the last n tokens are left",
    ),
    "shuffle": _Use(
        "It needs the order of no more than the last {} tokens",
        "It uses the order of tokens far back",
        "The order of tokens farther back does harm",
        "It makes no use of the order of tokens before the last",
        "if all but the last n tokens come in a random order",
    ),
}


def _sharpest(head: Sharpest, count: int) -> str:
    """Return the sentence on the head that looks most at one distance. count: of all heads."""
    if not head.is_peak:
        return (
            f"No head keeps to a distance: the most that one has at any is {head.weight:.0%} of its attention, on "
            f"{_where(head)}; spread evenly, it would be {head.even:.0%}."
        )
    text = f"Head {head.head} of layer {head.layer} has {head.weight:.0%} of its attention on {_where(head)}"
    if count == 1:
        return f"{text}."
    if head.agreeing == 1:
        return f"{text}; no other of the {count} heads looks there most."
    heads = f"all {count} heads" if head.agreeing == count else f"{head.agreeing} of {count} heads"
    return f"{text}; {heads} look there most."


def _where(head: Sharpest) -> str:
    return {0: "the token itself", 1: "the token before"}.get(head.distance, f"the token {head.distance} back")


def _unchanged(ablation: Ablation) -> str:
    difference, error = float(ablation.differences[0]), 2 * float(ablation.errors[0])
    if not ablation.exact:
        return f"its loss is the same ({difference:+.2f} ± {error:.2f} nats)"
    if difference == error == 0:
        return "it gets the same answers right"
    return f"it gets as many answers right ({100 * difference:+.0f} ± {100 * error:.0f} of 100)"


def _range(findings: Findings) -> str:
    model, probe_data = findings.study.model, findings.study.probe_data
    positions = model.pos.max_length(model.shape)
    if positions is not None:
        return f"It has {positions:,} positions, 0 to {positions - 1:,}: a longer text can't be read in one piece."
    longest = model.shape.training_length if probe_data is None else probe_data.longest
    return f"It is defined at any position. In training it read at most {longest:,} tokens; longer is extrapolation."


def _reach(measured: AttentionMeasures) -> str:
    reach, sharpest = sorted(measured.reach.flatten().tolist()), measured.sharpest
    verdict = "Some heads look nearby" if 2 * reach[0] < measured.even_reach else "No head keeps to what is near"
    if sharpest.is_peak:
        head = f"{sharpest.weight:.0%} of head {sharpest.head} in layer {sharpest.layer}"
        verdict = f"Attention peaks on {_where(sharpest)} ({head}). How far it spreads"
    tokens = f"{reach[0]} token{'s' * (reach[0] != 1)}"
    return (
        f"{verdict}: of {len(reach)} heads, the narrowest has {MASS:.0%} of its attention within {tokens}, the middle "
        f"one within {reach[len(reach) // 2]}, the widest within {reach[-1]}. Spread evenly, it would be "
        f"{measured.even_reach}."
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
    where = f"after {layer} layer{'s' * (layer > 1)}" if layer else "before the first layer"
    return (
        f"A linear probe {verb} the position from the hidden states: its error is {error:.1f} tokens at best "
        f"({where}), guessing the middle gives {probes.middle:.1f}."
    )


def _until(ablation: Ablation, use: _Use) -> str:
    """Return how far back something is used, how much a change of it matters, and from which size on it doesn't."""
    changed = _changed(ablation)
    if not changed:
        return f"{use.none}: {use.change}, no difference shows, even with n = {ablation.sizes[0]}."
    first, last = changed[0], changed[-1]
    enough = ablation.sizes[last + 1]  # with all tokens left, nothing is changed
    if any((float(ablation.differences[n]) > 0) == ablation.exact for n in changed):
        claim = use.harm
    elif enough == ablation.sizes[-1]:
        claim = use.far
    else:
        claim = use.enough.format(enough)
    text = f"{claim}: {use.change}, {_amount(ablation, first)} with n = {ablation.sizes[first]}"
    if last > first:
        text += f", and {_amount(ablation, last)} with n = {ablation.sizes[last]}"
    return f"{text}; from n = {enough} on no difference shows."


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
        return f"it gets {abs(difference) * 100:.0f} {more} of 100 answers right (± {error * 100:.0f})"
    return f"its loss is {abs(difference):.2f} {'higher' if difference > 0 else 'lower'} (± {error:.2f})"
