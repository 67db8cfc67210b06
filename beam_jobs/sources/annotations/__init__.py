"""Annotations of objects: files that name images, and boxes in them.

collecting   the images and objects that annotation files name, whatever their format
box_rows     the rows of tables of boxes
box_values   the values in their columns: numbers of boxes, classes and lists of them
image_sets   lists of images that give the splits
recognising  annotation files by how they begin
listing      one row of the listing for each file and each annotated image, with the objects as features
"""
