"""Annotations of objects: files that name images, and boxes in them.

collecting   the images and objects that annotation files name, whatever their format
image_sets   lists of images that give the splits
recognising  files by how they begin, and the folder of their images
listing      one row of the listing for each file and each annotated image, with the objects as features
"""
