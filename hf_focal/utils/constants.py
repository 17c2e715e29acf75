"""Names that several parts of the package share."""

MULTI_LABEL = "multi_label_classification"  # the problem type in Transformers' configs: a sigmoid for each label
WEBSITE = "https://hf-focal.github.io/hf_focal/"  # where the documentation is published
FEWEST_RECOMMENDED = 50  # the smallest number of held-out samples that corrections of encoders were measured with
