"""A graph beside the model that it was made of: results, time, sizes, and the start of a process."""
