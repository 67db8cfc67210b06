"""Decode TIFFs (TIFF 6.0 and its supplements) with tifffile and imagecodecs.

tifffile reads the directories, imagecodecs decompresses strips and tiles. Pillow and OpenCV were the
alternatives at hand, and libvips. Pillow reads some layouts with decoders of its own, which misplace samples
(planes of 16 bits, YCbCr without compression), and OpenCV and libvips hand over pixels, not samples: which of
five channels is opacity, or which sample is white, is then lost. These two hand over every sample at its own
depth, with all tags. Their licence is BSD, they have wheels for every Python that Shardmill runs on (28 MB,
one for all versions), decompress into memory of a stated size without the GIL, and keep no state that a fork
or a thread could break. They are less fuzzed than libtiff: a decoder that crashes costs one image
(``shardmill.beam_jobs.execution``).
"""
