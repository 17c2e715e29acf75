"""Problem types of models, by their names in Transformers' configs."""

MULTI_LABEL = "multi_label_classification"  # a sigmoid for each label
