"""Decode and encode JPEG through libjpeg-turbo: header, segments, scans, planes and pixels."""
