"""Labels and predictions in the pictures of examples."""

from __future__ import annotations

import numpy as np
import pytest

from shardmill.infra.codecs.masks import class_colors
from shardmill.training.tasks.annotated import AnnotatedBoxes, AnnotatedMask

BLACK = np.zeros((20, 40, 3), np.uint8)
LEFT = np.repeat(np.array([[0, 1]], np.uint8), 2, axis=0)
RIGHT = 1 - LEFT


def test_boxes_of_objects_are_white_and_found_ones_red() -> None:
    drawn = AnnotatedBoxes([[0.0, 0.0, 0.5, 0.5]], [[0.5, 0.5, 1.0, 1.0]]).drawn(BLACK[:, :, :1])
    assert drawn.shape == (20, 40, 3)
    assert (drawn[0, :20] == 255).all()
    assert (drawn[19, 20:] == (230, 40, 40)).all()
    assert not drawn[5, 10].any()
    assert not BLACK.any(), "the given picture is not changed"


@pytest.mark.parametrize(("is_whole", "side"), [(True, 40), (False, 20)])
def test_masks_lie_side_by_side_over_what_the_model_sees(is_whole: bool, side: int) -> None:
    drawn = AnnotatedMask(LEFT, RIGHT, 2, is_whole).drawn(BLACK)
    assert drawn.shape == (20, 2 * side + 4, 3)
    first, second = (np.rint(0.55 * color).tolist() for color in class_colors(2))
    assert drawn[3, [0, side - 1]].tolist() == [first, second]
    assert drawn[3, [side + 4, -1]].tolist() == [second, first]
    assert (drawn[:, side : side + 4] == 255).all()


def test_pixels_of_no_class_keep_their_color_and_a_mask_may_be_alone() -> None:
    mask = np.array([[0, 255]], np.uint8)
    drawn = AnnotatedMask(mask, None, 2).drawn(BLACK)
    assert drawn.shape == BLACK.shape
    assert not drawn[:, 20:].any()
    assert drawn[:, :20].any(axis=2).all()
