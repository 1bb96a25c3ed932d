"""Draws the pictures that schemes describe."""

from matplotlib.figure import Figure

from poslab.evaluation.looks import looks
from poslab.positions import Curves, Matrix, Picture


def draw(picture: Picture) -> Figure:
    """A matplotlib figure, free of pyplot's global state."""
    figure = Figure(figsize=(6, 4), dpi=100, layout="constrained")
    axes = figure.subplots()
    axes.set(title=picture.title, xlabel=picture.x_label, ylabel=picture.y_label)
    if isinstance(picture, Matrix):
        image = axes.imshow(
            picture.values.detach().cpu().numpy(), cmap="RdBu_r", vmin=-1, vmax=1, interpolation="nearest"
        )
        figure.colorbar(image, ax=axes)
    else:
        _draw_curves(axes, picture)
    return figure


def _draw_curves(axes, picture: Curves) -> None:  # type: ignore[no-untyped-def]
    every = max(1, len(picture.x) // 20)  # markers, which would hide a line of hundreds of points
    for (name, line), look in zip(picture.lines.items(), looks(), strict=False):
        axes.plot(picture.x, line.detach().cpu().numpy(), label=name, markersize=4, markevery=every, **look)
    axes.grid(alpha=0.3)
    if len(picture.lines) > 1:
        axes.legend(fontsize="small", ncols=1 + len(picture.lines) // 7)
