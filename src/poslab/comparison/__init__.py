"""Comparison of a table of results, of run folders or from elsewhere: findings, tables and figures of a report.

source.py          the table from a file; of_runs.py: from run folders, with what needs their models and curves
scores.py          what is compared: metric, length, unit, direction
groups.py          rows that differ in nothing but the seed, and the seeds that were planned for them
compare.py         groups compared (`compare_table`), and the findings on them (`Comparison`): begin here
seeds_and_text.py  whether a difference holds for held-out text
pairs.py           every pair
factors.py         effects of settings; grids.py: the setting that a validation chooses, figures over a setting
claims.py          claims in a file, written before the runs; verdicts.py: whether they are shown
solving.py         which seeds solve a task, and when; memory.py: losses by memory length
answers.py         which sentences a section has, and those on all its groups
sections.py        a section of the report: the table of schemes, and what it means; report.py: the page as blocks
figures.py         runs, intervals and costs; loss_figures.py, task_figures.py: losses and tasks by length
task_report.py     tasks by schemes, wrong answers; tasks.py: runs on a task; learned.py: pictures of models
curves.py          loss curves read, and their means written for TensorBoard; repeat.py: how to repeat the runs
"""
