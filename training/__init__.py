"""Turn shards into a trained model."""
