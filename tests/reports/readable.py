"""Whether a figure that is drawn can be read: texts neither overlap nor leave it."""

import numpy as np


def tick_boxes(axis):
    """The boxes of the labels of an axis, of those that are shown."""
    low, high = sorted(axis.get_view_interval())
    labels = zip(axis.get_ticklabels(), axis.get_ticklocs(), strict=True)
    return [label.get_window_extent() for label, value in labels if low <= value <= high]


def assert_apart(boxes, share=0.98):
    """No box overlaps another, where so much of the width and height of each counts."""
    boxes = [box.shrunk(share, share) for box in boxes]
    for i, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[i + 1 :])


def assert_inside(figure, boxes):
    extents = np.array([box.extents for box in boxes])
    width, height = figure.canvas.get_width_height()
    assert extents.min() >= 0 and extents[:, 2].max() <= width and extents[:, 3].max() <= height
