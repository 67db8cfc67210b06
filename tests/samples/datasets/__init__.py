"""Published versions, some of them without shards, and ways to compare and to read them."""
