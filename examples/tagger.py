"""A PyTorch tagger, moved: its state_dict as recorded, its results as PyTorch computed them.

The model is an embedding, a bidirectional LSTM of two layers and a dense layer, with sentences of
unequal length. `examples/data/tagger.npz` holds the weights under PyTorch's names and PyTorch's
results for several sizes (`record_tagger.py` made it). One executable serves them all.

Run: python examples/tagger.py        (needs no PyTorch)
"""

from pathlib import Path

import numpy as np

import lstm_ir as li

DATA = Path(__file__).parent / "data" / "tagger.npz"
TOLERANCE = 5e-5  # both sides computed in float32; logits reach 10
Arrays = dict[str, np.ndarray]


def graph(state: Arrays) -> li.Graph:
    """The tagger as PyTorch has it: tokens i32[T, B], lengths i32[B] -> logits [T, B, tags]."""
    # Weights keep the names; what is derived from them is computed once, when they are loaded.
    w = {name: li.weight(name, array) for name, array in state.items()}
    tokens = li.input("tokens", ("T", "B"), "i32")
    lengths = li.input("lengths", ("B",), "i32")
    x = li.take(w["embedding.weight"], tokens, axis=0)  # [T, B, 10]
    ends = []
    for layer in (0, 1):
        suffixes = (f"l{layer}", f"l{layer}_reverse")
        w_ih = li.stack([w[f"lstm.weight_ih_{s}"] for s in suffixes])  # [2, 4H, I], gates i f g o
        w_hh = li.stack([w[f"lstm.weight_hh_{s}"] for s in suffixes])
        b = li.stack([w[f"lstm.bias_ih_{s}"] + w[f"lstm.bias_hh_{s}"] for s in suffixes])
        x, h_n, c_n = li.lstm(x, w_ih, w_hh, b, lengths=lengths, direction="bidirectional")
        ends.append((h_n, c_n))
    logits = x @ li.transpose(w["head.weight"], (1, 0)) + w["head.bias"]
    h_n, c_n = (li.concat(pair, axis=0) for pair in zip(*ends, strict=True))
    return li.Graph("tagger", [tokens, lengths], {"logits": logits, "h_n": h_n, "c_n": c_n})


def load() -> tuple[Arrays, dict[str, Arrays]]:
    """The state_dict, and the recorded cases by name."""
    with np.load(DATA, allow_pickle=False) as archive:
        data = {name: archive[name] for name in archive.files}
    cases: dict[str, Arrays] = {}
    for name, array in data.items():
        case, slash, part = name.partition("/")
        if slash:
            cases.setdefault(case, {})[part] = array
    return {name: array for name, array in data.items() if "." in name}, cases


def main() -> None:
    state, cases = load()
    exe = li.compile(graph(state))
    for name, case in cases.items():
        tokens = case["tokens"].astype(np.int32)
        lengths = case.get("lengths", np.full(tokens.shape[1], len(tokens), np.int32))
        out = exe(tokens=tokens, lengths=lengths)
        recorded = {k: a for k, a in case.items() if k in out}
        worst = max(float(np.abs(out[k] - a).max()) for k, a in recorded.items())
        compared = ", ".join(recorded)
        print(f"{name}: largest difference to PyTorch {worst:.1e} ({compared})")
        assert worst < TOLERANCE, name


if __name__ == "__main__":
    main()
