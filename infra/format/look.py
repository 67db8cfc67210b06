"""The form of a look: the coarse structure of an image, the column ``look`` of the index.

A look has one or two views of an image: the whole, and what is inside its border if it has one. A view is
int8 [14 rows of vertical frequencies, 14 horizontal frequencies]; ``shardmill.infra.codecs.measures.look``
makes it.
"""

from typing import Final

LOOK_SIDE: Final = 14
LOOK_BYTES: Final = LOOK_SIDE**2  # length of a look of one view
ROOT_UNIT: Final = 4  # a value is so many times the root of a coefficient (grey levels)
