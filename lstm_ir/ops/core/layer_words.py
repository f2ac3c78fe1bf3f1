"""Words of other libraries for what a recurrent layer takes."""

from __future__ import annotations

from lstm_ir.ops.core.sizes import TWO_BIASES

LAYER = {
    **dict.fromkeys(("b_ih", "b_hh", "bias_ih", "bias_hh", "recurrent_bias"), TWO_BIASES),
    "bias": "b, an array [gates*H]; without it there is none",
    "use_bias": "b, an array [gates*H]; without it there is none",
    **dict.fromkeys(("bidirectional", "go_backwards"), 'direction="bidirectional" or "reverse"'),
    **dict.fromkeys(("batch_first", "time_major"), 'layout="batch" for x [B,T,I]; without it x is [T,B,I]'),
    **dict.fromkeys(("num_layers", "layers"), "li.lstm_stack or li.gru_stack"),
    **dict.fromkeys(("hidden_size", "units", "input_size"), "nothing, the sizes are those of w_ih and w_hh"),
    **dict.fromkeys(("hx", "h_0", "initial_state", "initial_h"), "h0 (and c0 of an LSTM)"),
    **dict.fromkeys(("return_sequences", "return_state"), "nothing, the results are y, all steps, and the last states"),
    **dict.fromkeys(("sequence_lengths", "sequence_lens", "sequence_length"), "lengths"),
    **dict.fromkeys(("weight_ih", "kernel", "W"), "w_ih"),
    **dict.fromkeys(("weight_hh", "recurrent_kernel", "R"), "w_hh"),
    **dict.fromkeys(("nonlinearity", "activation", "recurrent_activation"), "activations"),
    "mask": "lengths, the steps of each row, i32[B]",
    "linear_before_reset": "reset_after",
    "proj_size": "w_hr, the projection [P,H]",
}
"""Of recurrent layers: PyTorch's, Keras's and ONNX's names, and what stands here in their place."""
