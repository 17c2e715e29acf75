"""What the papers' experiments and the recipes share. The rest of `hf_focal` never imports it."""
