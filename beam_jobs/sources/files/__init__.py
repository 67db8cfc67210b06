"""The files of a source: a folder, the walk through it, patterns of names, and files that hold images."""
