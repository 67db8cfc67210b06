"""Drift: how the images of a version differ from those of the version before it.

    figures       how much each group of properties may differ; one compared property, in words and for JSON
    scales        properties of images as whole numbers (bins), so that counts of them add up
    population    how often each value occurs in a split; the distance of two, and the part that is chance
    measuring     from two versions to the figures

Nothing here decodes an image: all values come from the indexes and from the rows of the inputs. Memory stays
flat but for eight bytes a record of the shards that only one of the versions has.

**Distances** lie between 0 (the same) and 1 (nothing in common). Of numbers: the largest difference of the
cumulative shares (Kolmogorov and Smirnov). Of classes: half the sum of the differences of the shares (total
variation). Of looks: the mean difference, over the 64 bits of the perceptual hash, of the share of images
that have the bit. Of rates: the difference of the shares.

**Chance.** Few images differ from many by chance alone. ``population`` bounds that part, so that images drawn
from the same population stay below it in 9,999 of 10,000 comparisons. A figure exceeds its limit if its
distance without that part does.

**Scopes.** ``new`` compares the images that the version before did not have with those that it had: the
sensitive one. ``all`` compares the versions as a whole, which is what a model will see.
"""
