"""Copies of a version, or of a view, in the forms of other libraries."""
