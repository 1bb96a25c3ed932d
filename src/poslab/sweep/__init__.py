"""Sweeps: many training jobs from one command, each in a process of its own, none run twice."""

from poslab.sweep.job import run_job
from poslab.sweep.sweep import run_sweep

__all__ = ["run_job", "run_sweep"]
