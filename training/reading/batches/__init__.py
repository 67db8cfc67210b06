"""Turn the steps of an order into batches of decoded images (numpy)."""
