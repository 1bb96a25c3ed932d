"""Tasks that need position: examples without end, each a question and what is to be answered to it."""

from poslab.tasks.base import Examples, Task
from poslab.tasks.metric import Metric

__all__ = ["Examples", "Metric", "Task"]
