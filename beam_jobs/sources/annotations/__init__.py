"""Annotations of objects: files that name images, and boxes in them.

collecting     the images and objects that annotation files name, and how the files are recognised
image_sets     lists of images that give the splits
reading        the annotation files that the settings name
features       further features of images, from the entries that name them
listing        one row of the listing for each file and each annotated image, with the objects as features
drawing        masks of classes that are drawn from the polygons, in place of objects
shapes         polygons, key points and oriented boxes of objects, checked and collected
shape_columns  these shapes as features of the listing
naming         the file of each annotated image, where paths are of another machine
tools          what the kinds of labelling tools share
"""
