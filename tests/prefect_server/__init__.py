"""Tests on a real Prefect server. A package, so that its fixtures end with its last test."""
