"""Run folders: checkpoints, summary and other files, written and read back."""
