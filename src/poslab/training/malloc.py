"""Memory that is freed stays with the process, because a training step takes the same again at once."""

import ctypes

# Numbers of mallopt's parameters, from glibc's malloc.h.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4


def keep_freed_memory() -> bool:
    """Stops glibc from handing large blocks back to the system when they are freed; False where there is no glibc.

    By default every tensor above 32 MiB, such as the logits, is mapped anew and cleared by the system page by page. On
    two cores with model=mini that took a fifth to a quarter of a training step.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # not glibc: macOS, Windows, musl
        return False
    return all([mallopt(_MMAP_MAX, 0), mallopt(_TRIM_THRESHOLD, 2**31 - 1), mallopt(_TOP_PAD, 64 * 2**20)])
