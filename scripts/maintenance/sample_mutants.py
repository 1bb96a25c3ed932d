"""Leave a random sample of the mutants in a session of cosmic-ray, which knows thousands.

python scripts/maintenance/sample_mutants.py mutation.sqlite 100 [SEED]
"""

import random
import sqlite3
import sys


def main(session: str, count: int, seed: int = 0) -> None:
    """Drop all mutants that have no result yet but `count` of them."""
    with sqlite3.connect(session) as connection:
        done = "select job_id from work_results"
        left = [row[0] for row in connection.execute(f"select job_id from work_items where job_id not in ({done})")]
        dropped = sorted(set(left) - set(random.Random(seed).sample(sorted(left), count)))
        for table in ("mutation_specs", "work_items"):
            connection.executemany(f"delete from {table} where job_id = ?", [(job,) for job in dropped])


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
