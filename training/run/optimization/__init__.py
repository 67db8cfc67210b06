"""How gradients become new weights: schedule, optimizer, weight decay, and rates by layer."""
