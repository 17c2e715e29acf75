"""What the figure of AdaFocal's γ holds: the numbers of the history, in their places."""

import numpy as np
import pytest
from matplotlib.image import imread

from hf_focal.reports import gamma_heatmap

HISTORY = [
    {"step": 5, "epoch": 0.5, "gammas": [0.3, 1.0, 9.0], "edges": [0.0, 0.4, 0.7, 1.0]},
    {"step": 20, "epoch": 2.0, "gammas": [-0.2, 0.9, 20.0], "edges": [0.0, 0.5, 0.8, 1.0]},
    {"step": 30, "epoch": 3.0, "gammas": [-2.0, -0.2, 20.0], "edges": [0.0, 0.6, 0.9, 1.0]},
]


def mesh_of(figure):
    (mesh,) = figure.axes[0].collections
    return mesh


def changed(number, **values):
    """The history with an entry changed."""
    return [entry | values if index == number else entry for index, entry in enumerate(HISTORY)]


def hatched_cells(axes, num_bins, epochs):
    """Whether the middle of each cell (bin, column) lies in a hatched patch."""
    middles = (np.array(epochs[1:]) + np.array(epochs[:-1])) / 2
    return [
        [
            any(patch.get_path().contains_point((x, bin)) for patch in axes.patches if patch.get_hatch())
            for x in middles
        ]
        for bin in range(1, num_bins + 1)
    ]


def test_columns_start_at_the_updates_and_rows_are_bins(tmp_path):
    path = tmp_path / "gamma.png"
    figure = gamma_heatmap(HISTORY, title="A title", path=path)
    heat, inner, bar = figure.axes
    np.testing.assert_array_equal(mesh_of(figure).get_array(), [[1, 0.3, -0.2, -2], [1, 1, 0.9, -0.2], [1, 9, 20, 20]])
    corners = mesh_of(figure).get_coordinates()
    np.testing.assert_array_equal(corners[0, :, 0], [0, 0.5, 2, 3, 4])
    np.testing.assert_array_equal(corners[:, 0, 1], [0.5, 1.5, 2.5, 3.5])
    assert (heat.get_xlim(), heat.get_ylim()) == ((0, 4), (0.5, 3.5))
    assert heat.get_yticks().tolist() == [1, 2, 3]
    assert (inner.get_xlabel(), heat.get_ylabel()) == ("Epoch", "Bin, by true-class probability")
    assert (inner.get_ylabel(), bar.get_ylabel()) == ("True-class\nprobability", "γ (below 0: inverse focal loss)")
    assert "γ in each bin" in heat.get_title() and "γ by probability" in inner.get_title()
    assert figure.get_suptitle() == "A title"
    assert imread(path).std() > 0.1


def test_inner_edges_are_steps_from_equal_widths():
    inner = gamma_heatmap(HISTORY).axes[1]
    assert [line.get_drawstyle() for line in inner.lines] == ["steps-post"] * 2
    for line, edges in zip(inner.lines, ([1 / 3, 0.4, 0.5, 0.6, 0.6], [2 / 3, 0.7, 0.8, 0.9, 0.9]), strict=True):
        np.testing.assert_array_equal(line.get_xdata(), [0, 0.5, 2, 3, 4])
        np.testing.assert_allclose(line.get_ydata(), edges, rtol=1e-15)
    assert (inner.get_xlim(), inner.get_ylim()) == ((0, 4), (0, 1))


def test_each_probability_has_the_color_of_its_bin():
    """With collapsed edges as well: the last bin then spans nearly everything."""
    inner = gamma_heatmap(changed(1, edges=[0, 0.06, 0.06, 1])).axes[1]
    (mesh,) = inner.collections
    corners, gammas = mesh.get_coordinates(), mesh.get_array()

    def at(epoch, probability):
        column = np.searchsorted(corners[0, :, 0], epoch, side="right") - 1
        return gammas[np.searchsorted(corners[:, column, 1], probability, side="right") - 1, column]

    assert [at(0.2, p) for p in (0.1, 0.5, 0.9)] == [1, 1, 1]
    assert [at(1.0, p) for p in (0.39, 0.41, 0.71)] == [0.3, 1, 9]
    assert [at(2.5, p) for p in (0.05, 0.07, 0.9)] == [-0.2, 20, 20]
    assert [at(3.9, p) for p in (0.59, 0.61, 0.91)] == [-2, -0.2, 20]


def test_negative_gammas_alone_are_hatched():
    heat, _, bar = gamma_heatmap(HISTORY).axes
    expected = [[False, False, True, True], [False, False, False, True], [False] * 4]
    assert hatched_cells(heat, 3, [0, 0.5, 2, 3, 4]) == expected
    (key,) = [patch for patch in bar.patches if patch.get_hatch()]
    low, high = key.get_path().transformed(key.get_patch_transform()).get_extents().intervaly
    assert (low, high) == (-2, 0)


@pytest.mark.filterwarnings("error")
def test_updates_in_one_epoch_and_at_the_start():
    figure = gamma_heatmap(changed(0, epoch=2.0))
    np.testing.assert_array_equal(mesh_of(figure).get_coordinates()[0, :, 0], [0, 2, 2, 3, 4])
    figure = gamma_heatmap([HISTORY[0] | {"epoch": 0.0}])
    np.testing.assert_array_equal(mesh_of(figure).get_coordinates()[0, :, 0], [0, 0, 1])
    figure.draw_without_rendering()


@pytest.mark.parametrize(
    ("history", "message"),
    [
        ([], "history must hold at least one update, got none"),
        (changed(1, gammas=[1.0, 1.0]), "must have 3 gammas and 4 edges in each update, got 2 and 4"),
        (changed(1, epoch=0.25), r"epochs that do not decrease from 0, got \[0.5, 0.25, 3.0\]"),
    ],
)
def test_errors(history, message):
    with pytest.raises(ValueError, match=message):
        gamma_heatmap(history)
