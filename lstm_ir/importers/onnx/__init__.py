"""ONNX models as graphs: `li.from_onnx`."""
