"""Small inputs that several tests share."""
