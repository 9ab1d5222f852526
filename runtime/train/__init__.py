"""Training: one optimizer step, the schedule of steps, the run with its checkpoints and its progress."""
