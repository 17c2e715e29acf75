"""Code shared by the papers' experiments and the recipes; the rest of `hf_focal` never imports it."""
