"""Publishing: the accounting of all inputs, the manifest, and the result of a run.

digests       by which finished blocks, plans and versions are found again
accounting    do the rows of all inputs add up, and are few enough quarantined?
outline       the rows of all inputs as files, and the parts of a plan that stay in memory
unchanged     would this run publish the newest version again?
versions      the manifest and the report of the new version
warning       warnings about versions with empty splits or far too many shards
result        the result of a run
"""
