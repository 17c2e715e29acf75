"""What the tests of the recipes for pixels and for tokens share."""

from recipe_modules import flags


def command_line(folder, **options) -> list[str]:
    """Arguments for a run of seconds."""
    values = {
        "output_dir": folder,
        "num_train_epochs": 2,
        "learning_rate": "0.01",
        "per_device_train_batch_size": 8,
        "per_device_eval_batch_size": 8,
        "save_strategy": "no",
        "use_cpu": "true",
        "disable_tqdm": "true",
    } | options
    return flags(values)
