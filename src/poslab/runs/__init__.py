"""Run folders: checkpoints, summary and other files, written and read back; nothing is imported here.

folder.py            names of the files, a new folder, its lock
initial.py           files of weights to begin with (`init_from`)
saved_weights.py     weights that transformers has saved, in one file or in shards
load.py              finished runs of some folders (`read_runs`), for comparisons
readers.py           JSON and YAML, and the values of a dataclass's fields
summary.py           summary.json
evaluation.py        evaluation.json: losses by length and position
error_examples.py    answers.json: wrong answers of a task
checkpoint.py        checkpoints read back, and the model that one describes
checkpoint_files.py  files of checkpoints: written, read without running code, the newest intact one
resumed_settings.py  settings of a run that resumes
groups.py            runs that differ in nothing but the seed, on the same data
provenance.py        what weakens a comparison of runs: other code, packages, machines; repeated runs
table.py             finished runs as a table of results (`run_table`)
plan.py              plan.yaml: groups and seeds that a sweep was to train
code.py              fingerprints of the code of schemes and tasks
"""
