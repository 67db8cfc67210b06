"""The augmentations, one file each: ``shardmill.training.augment.kind`` says what such a file defines."""
