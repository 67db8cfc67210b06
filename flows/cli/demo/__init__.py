"""`shardmill demo`: prepare a small folder of imperfect images, train on it, and explain what happened."""
