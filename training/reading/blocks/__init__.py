"""Read whole blocks of neighbouring records ahead of use, for orders by block."""
