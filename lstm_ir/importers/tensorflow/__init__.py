"""TensorFlow graphs as graphs: frozen GraphDefs, checkpoints and SavedModels, read without TensorFlow."""
