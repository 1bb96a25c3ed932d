"""Comparison of run folders, on top of `seedstats`, which has the statistics and the page.

results.py       what is compared: a table from a file, or from run folders; the question put to seedstats
of_runs.py       run folders read, what is missing measured, and what only runs add to a report
costs.py         parameters, speed and memory of schemes
loss_figures.py  losses by step, position and length; memory.py: by memory length; curves.py: curves read, means written
solving.py       which seeds solve a task, and when
tasks.py         runs on a task; task_figures.py, task_report.py: by length, all tasks in a matrix, wrong answers
learned.py       pictures of models; repeat.py: how to repeat the runs
"""
