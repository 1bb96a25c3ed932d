"""Tasks that need position: examples without end, each a question and what is to be answered to it."""

from poslab.tasks.base import Examples, Task

__all__ = ["Examples", "Task"]
