"""Reuse of the previous version, so that only new files are read, decoded and written.

policy        the parts of the previous version that are valid under the settings of this run
previous      its records, inputs and shards
known_files   files that are known by URI, size and time of change, without being read
facts         the facts of all files, those known by their content among them
"""
