"""Fault campaign at full size, for a release; takes some minutes.

    python scripts/maintenance/fault_campaign.py                     all
    python scripts/maintenance/fault_campaign.py kills bad-input     some of them

Every change is tested with a part of it: the slow tests. The figures of the last campaign stand in tests/README.md.
Exit code: pytest's, 0 if every fault was survived or refused.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
# The tests by name.
CAMPAIGN = {
    "kills": "commands/test_faults.py",
    "cut-offs": "training/test_resume.py",
    "bad-input": "commands/test_bad_input.py",
    "draws": "commands/test_random_configurations.py",
    "large-text": "training/test_train.py::test_a_large_text_trains_in_little_memory",
    "large-corpus": "data/test_documents.py::test_a_large_corpus_trains_in_little_memory",
}


def main() -> int:
    worst = 0
    for name in sys.argv[1:] or CAMPAIGN:
        print(f"{name} ...", flush=True)
        options = ["-n", "logical", "-rP", "-q", "-m", "slow or not slow"]
        command = [sys.executable, "-m", "pytest", *options, f"tests/{CAMPAIGN[name]}"]
        environment = os.environ | {"POSLAB_CAMPAIGN": "full"}
        result = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
        for line in re.findall(r"^campaign: (.*)$", result.stdout, re.MULTILINE):
            print(f"    {line}")
        print(f"    {result.stdout.splitlines()[-1]}", flush=True)
        if result.returncode:
            print(result.stdout, result.stderr)
        worst = max(worst, result.returncode)
    return worst


if __name__ == "__main__":
    sys.exit(main())
