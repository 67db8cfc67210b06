"""What a run shows while it trains: its first batch and a profile of TensorFlow."""
