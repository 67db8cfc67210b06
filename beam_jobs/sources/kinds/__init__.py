"""The kinds of sources, a module or folder each: ``list_inputs(folder, config) -> Listing``.

A module is found by its name (``source.kind``), so a new kind is a new file here.
"""
