"""What the environment of every process that runs TensorFlow as an oracle says, before its import."""

SETTINGS = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_ENABLE_ONEDNN_OPTS": "1",  # gradients of dilated and grouped convolutions; off without AVX-512
    "CUDA_VISIBLE_DEVICES": "",
    "KERAS_BACKEND": "tensorflow",
}
