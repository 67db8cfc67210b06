"""Settings of planning: splits, groups of images, and shards."""
