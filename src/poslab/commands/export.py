"""Command `export`: a run's best weights as a folder that transformers loads."""

import os
from pathlib import Path

from poslab.config.scripts import ExportConfig
from poslab.hf.export import export
from poslab.runs.checkpoint import load_checkpoint


def run_export(config: ExportConfig) -> None:
    """Export, and print what was written. Raises UserError for whatever the user can put right."""
    checkpoint = load_checkpoint(config.ckpt, allow_code=config.allow_code)
    print(f"checkpoint  {checkpoint.path} ({checkpoint.pos_name})")
    folder = Path(os.path.expanduser(config.to))
    for line in export(checkpoint, folder):
        print(line)
    print(f"written     {folder}")
