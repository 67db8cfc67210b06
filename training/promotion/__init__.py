"""Decide which run has an alias: compare a candidate with the run that has it, and move the alias.

    rules -> measuring (both runs on the same records) -> verdict -> a record in the history of the alias

Imports no TensorFlow: models are evaluated in processes of their own. Supported tasks are those whose runs
``shardmill compare`` compares.
"""
