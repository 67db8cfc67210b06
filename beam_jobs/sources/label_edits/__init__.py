"""Corrected labels of single images: CSV files that ``source.label_edits`` names, applied to the listing.

reading    the decisions in the files: a label for an image, or to leave it out
applying   the listing with the decisions in place of what the source says
"""
