"""Settings: their types, limits and parsing, and the files that they name.

A setting of train is checked in this order:

overrides.py     its name, before torch is loaded (`require_known`)
train.py         all settings of a run, group by group, then together (`parse`)
schemes.py       the scheme or task that a node describes (`parse_scheme`, `parse_task`)
parts.py         a part: optimizer, schedule, callback, logger, norm, MLP
checking.py      types and limits, by pydantic, which makes the dataclass and so calls `__post_init__` (`checked`)

Settings of a scheme or task are written in its own class, all others in

schema.py        the groups of train
scripts.py       all other commands
fields.py        types with limits, and the role of a setting

The rest:

groups.py        groups by name, and the role of each setting; nodes.py: classes and their settings as plain values
command_line.py  command lines of all commands but train; help.py: what train --help shows
trust.py         what a description of somebody else's may name
corpora.py       files of a corpus; hugging_face.py: data sets on the Hub, and copies of them
files.py         poslab's own files, and writing that is whole or not at all
"""
