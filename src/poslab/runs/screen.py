"""Durations and text for the screen."""


def clock(seconds: float) -> str:
    """Write seconds as minutes and hours: 75 -> "1:15"."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def printable(text: str) -> str:
    """Replace each character that a terminal would obey by a dot."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{MIDDLE DOT}" for c in text)
