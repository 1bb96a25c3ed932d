"""Small things that are said the same way everywhere."""


def clock(seconds: float) -> str:
    """75 -> "1:15"."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
