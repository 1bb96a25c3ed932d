"""Runs on disk: their folder, checkpoints and summary, and what reads them back."""
