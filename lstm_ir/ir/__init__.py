"""What a graph is: types, sizes, values, ops as data, text, meaning. It imports no op."""
