"""Build the archives of a release, check them, and try them on each Python here (``make dist``)."""
