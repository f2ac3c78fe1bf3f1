"""MPSGraph's recurrent ops and their gradient ops. Importing this registers them."""

from lstm_ir.ops.mps import gru, gru_gradients, lstm, lstm_gradients, rnn, rnn_gradients
