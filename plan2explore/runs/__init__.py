"""A run's folder: its settings, checkpoints and metrics, and what it takes to resume after anything."""
