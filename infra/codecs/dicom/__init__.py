"""Decode DICOM images (PS3.3 and PS3.5 of the standard) with pydicom.

Only the pixels of a file are taken, and a hash of its series, which does not reveal the patient.
"""
