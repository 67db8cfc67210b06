"""Decode DICOM images (PS3.3 and PS3.5 of the standard) with pydicom.

Nothing is taken from a file but its pixels, and a key of its series from which no patient can be told.
"""
