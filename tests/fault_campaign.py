"""Fault campaign at full size, for a release; takes an hour or so.

    python tests/fault_campaign.py                     all
    python tests/fault_campaign.py kills bad-input     some of them

Every change is tested with a part of it: the slow tests. The figures of the last campaign stand in tests/README.md.
Exit code: pytest's, 0 if every fault was survived or refused.
"""

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
# By name: the tests, and what is counted.
CAMPAIGN = {
    "kills": (
        "commands/test_faults.py",
        "SIGKILL at random and while a checkpoint is written, a full disk, interruptions",
    ),
    "cut-offs": ("training/test_resume.py", "runs cut off at hooks of training, validation and epochs"),
    "bad-input": (
        "commands/test_bad_input.py",
        "values that can't be, of every option of every script; files that are none",
    ),
    "draws": ("commands/test_random_configurations.py", "configurations drawn at random"),
    "large-text": ("training/test_train.py::test_a_large_text_trains_in_little_memory", "200 MB of text"),
    "large-corpus": (
        "data/test_token_cache.py::test_a_large_corpus_trains_in_little_memory",
        "1 GB of documents, killed once",
    ),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"by default all of {', '.join(CAMPAIGN)}")
    names = parser.parse_args().names or list(CAMPAIGN)
    if unknown := set(names) - set(CAMPAIGN):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; valid: {', '.join(CAMPAIGN)}")
    worst = 0
    for name in names:
        tests, what = CAMPAIGN[name]
        print(f"{name}: {what} ...", flush=True)
        options = ["-n", "logical", "-rP", "-q", "-m", "slow or not slow"]
        command = [sys.executable, "-m", "pytest", *options, f"tests/{tests}"]
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
