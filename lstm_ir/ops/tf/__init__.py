"""TensorFlow's block LSTM and GRU ops. Importing this registers them."""

from lstm_ir.ops.tf import block_lstm, block_lstm_grad, gru_block_cell, lstm_block_cell
