"""Losses of the papers that the library does not have; importing a module registers its loss."""
