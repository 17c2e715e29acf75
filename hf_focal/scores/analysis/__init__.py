"""What reports show beside metrics: groups of samples, changes since earlier ones, and single samples."""
