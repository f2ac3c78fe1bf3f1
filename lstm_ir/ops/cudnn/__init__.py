"""TensorFlow's CudnnRNNV3, its gradient op and its parameter ops. Importing this registers them."""

from lstm_ir.ops.cudnn import params, rnn, rnn_backprop
