"""Clusters: one rule for tables and for models, and folds that keep clusters whole."""

import numpy as np
import pytest

from hf_focal.calibration.clusters import cluster_numbers, random_folds, usable_clusters


@pytest.mark.parametrize(("number", "is_named", "is_used"), [(9, False, False), (9, True, True), (10, False, True)])
def test_few_clusters_that_were_found_do_not_cut_samples(number, is_named, is_used):
    clusters, independent, (note,) = usable_clusters(np.arange(40) % number, "rows", "s.csv", "text", is_named)
    assert (clusters is not None) == independent == is_used
    assert note.startswith(f"the 40 rows of s.csv have {number} values of 'text'")
    together = "rows with the same value stay together in folds, for thresholds, and for intervals"
    assert (together in note) == is_used
    assert ("name what is drawn independently as cluster_column" in note) != is_used


def test_numbers_of_clusters():
    assert cluster_numbers(np.array(["b", "a", "b"])).tolist() == [0, 1, 0]
    assert cluster_numbers(np.arange(3)) is None and cluster_numbers(None) is None


def test_samples_that_all_differ_need_no_note():
    clusters, independent, notes = usable_clusters(np.arange(4), "samples", "s.csv", "text", False)
    assert clusters.tolist() == [0, 1, 2, 3] and independent and notes == ()


def test_a_cluster_is_in_one_fold():
    clusters = np.random.default_rng(0).integers(0, 30, 200)
    folds = random_folds(np.arange(200) % 3, 5, clusters)
    assert all(len({*folds[clusters == key]}) == 1 for key in range(30)) and {*folds} == {*range(5)}
