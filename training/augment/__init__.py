"""Augment training examples. Every random number is a function of (seed, epoch, position).

An augmentation is one file of ``kinds``; ``kind`` says what it defines. ``parameters`` draws the parameters
of a batch. Windows are cut and resized where images are decoded, and ``augment_image`` does the rest to each
image. What mixes examples, or is too slow for the host, is done to whole batches on the device.
"""
