"""Aliases of models, such as ``photos@production``: the run that has the alias, and the history of decisions.

::

    <runs>/aliases/<dataset>/<alias>/
      000001.json     a record: an alias was moved to a run, or a candidate did not get it
      000002.json

A record is created if its number is absent, as manifests are: two processes never lose each other's record,
and a record that is half written is never seen. Records are not changed later. The last one that moved the
alias says which run has it. Imports no TensorFlow.
"""
