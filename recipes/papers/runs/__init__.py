"""What the experiments' scripts share.

- `arguments`: the command line
- `loss_comparison`, `output_folders`: the loop over losses, which skips, resumes, and compares runs
- `classifier_results`, `translation_results`, `reports`: what a run measures and writes
- `image_models`, `image_training`, `word_vectors`, `checkpoint_averaging`: the papers' training
- `training_dynamics`, `class_weights_callback`: what is recorded during training
- `fine_tuned_encoders`: fine_tuning.py and yes_or_no.py
"""
