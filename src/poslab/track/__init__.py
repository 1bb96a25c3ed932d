"""Track: positional encodings under one set of conditions, tuned, with an entry for each that anybody may add.

rules.py     what is fixed, tuned and compared, from rules.yaml
entry.py     one encoding's figures, a csv file
verdict.py   what the figures show: statistics
board.py     the page of all entries, and its picture

`commands/track.py` trains an entry.
"""
