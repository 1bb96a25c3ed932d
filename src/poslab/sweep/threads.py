"""How many threads each of several jobs on one machine gets."""

import os

from omegaconf import DictConfig


def divide_threads(config: DictConfig, jobs: int) -> int | None:
    """The machine's processors over the jobs that the launcher runs at a time; None where it runs one by one, or
    elsewhere, as on a cluster, whose scheduler gives each job its own."""
    launcher = config.hydra.launcher
    if "joblib" not in str(launcher.get("_target_")):
        return None
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    at_a_time = int(launcher.n_jobs)
    if at_a_time < 0:  # joblib: -1 is all processors, -2 all but one
        at_a_time = max(1, processors + 1 + at_a_time)
    return max(1, processors // max(1, min(at_a_time, jobs)))
