"""How gradients become new weights in PyTorch: optimizer, weight decay, rates by layer, averages."""
