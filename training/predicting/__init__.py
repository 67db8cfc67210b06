"""Predict images of any kind with the exported model of a run, without its dataset."""
