"""The demonstration: prepare a small folder of imperfect images and train on it.

``python -m shardmill.flows.demo`` (or ``make demo``) creates the folder, runs ``shardmill run`` on it, and
prints the results and where to find them.
"""
