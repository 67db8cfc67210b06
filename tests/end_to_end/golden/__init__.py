"""Golden records pin the stored bytes of whole datasets.

A case is a source and the commands that make a dataset of it. ``recorded/<case>.json`` describes the dataset:
the SHA-256 of every shard and index, a digest of every column of the tables, the counts of the manifest and
the outcome of every input. ``tests/end_to_end/test_golden.py`` runs each case again and shows what differs.

::

    python -m tests.end_to_end.golden                    compare all cases
    python -m tests.end_to_end.golden --write            record all cases again
    python -m tests.end_to_end.golden --write odd grown  record these two again

Write records only after an intended change of the stored bytes, and read their diff before you commit it.

Cases use public commands and the documented file format only, so the code behind them may move. The records
leave out folders, times and digests of configurations, because these may change.
"""
