"""The ground floor: the dataset contract, storage, configuration, errors and processes.

Imports no Beam, TensorFlow or Prefect, so that every part above can run on its own.
"""
