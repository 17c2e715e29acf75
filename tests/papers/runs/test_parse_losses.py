"""Several losses in one text, where a comma separates losses and also the options of one."""

import pytest
from papers.runs.recipe_arguments import parse_losses

from hf_focal import LossConfig


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "mmce:lam=8,weighted=true,focal:gamma=1,focal:gamma=2",
            ["mmce:lam=8,weighted=true", "focal:gamma=1", "focal:gamma=2"],
        ),
        (" brier , cross_entropy,, ", ["brier", "cross_entropy"]),
        ("flsd53,flsd:thresholds=0.2,gammas=5/3", ["flsd53", "flsd:gammas=5/3"]),
    ],
)
def test_losses_and_their_options(text, expected):
    assert parse_losses(text) == [LossConfig.parse(loss) for loss in expected]


def test_what_is_printed_reads_back():
    configs = parse_losses("flsd:thresholds=0.2/0.5,gammas=5/3/2,focal:schedule=5/3/2,adafocal:bins=10,lam=2")
    assert parse_losses(",".join(map(str, configs))) == configs
    assert len(configs) == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (" , ", "losses must name at least one of"),
        ("focal,brier,focal:gamma=3", "got focal:gamma=3 twice"),
        ("brier,focl:gamma=3", r"loss must be one of .*got 'focl': did you mean 'focal'\?"),
        ("brier,gamma=3", "loss must have a colon before its options, got 'brier,gamma=3'"),
    ],
)
def test_errors(text, message):
    with pytest.raises(ValueError, match=message):
        parse_losses(text)
