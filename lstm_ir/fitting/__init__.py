"""The loop around a program that trains: batches, validation, checkpoints, logs, progress."""
