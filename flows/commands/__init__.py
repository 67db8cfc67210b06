"""The commands of `shardmill`, a file a family. Nothing heavy is imported before a command needs it."""
