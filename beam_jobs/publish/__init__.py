"""Publishing: the accounting of all inputs, the manifest, and the result of a run.

digests       by which blocks, plans and versions are found again; would this run publish the newest again?
accounting    do the rows of all inputs add up, and are few enough quarantined?
outline       the rows of all inputs as files, and the parts of a plan that stay in memory
versions      the manifest and the report of the new version, and warnings about it
result        the result of a run
"""
