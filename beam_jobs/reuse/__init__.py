"""What the previous version already has, so that only what is new is read, decoded and written.

policy        how much of the previous version is still valid under the settings of this run
previous      its records, inputs and shards
known_files   files that are known by URI, size and time of change, without being read
facts         the facts of all files, those known by their content among them
"""
