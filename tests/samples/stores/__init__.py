"""Object stores on this machine, and what can go wrong on the way to them."""
