"""Train the character language model of char_lm.py with PyTorch and record its losses.

Same text, batches, first weights, optimizer and number of steps; written to data/char_lm.npz.

Run: python examples/record_char_lm.py       (needs PyTorch; about a minute on one core)
"""

import numpy as np
import torch
from char_lm_text import CLIP, CURVE, EMBED, HIDDEN, STEPS, B, T, batches, fresh, held_out, rate
from torch import nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        w = {n: torch.from_numpy(a) for n, a in fresh().items()}
        self.embedding = nn.Embedding(*w["embedding"].shape)
        self.lstm = nn.LSTM(EMBED, HIDDEN)
        self.out = nn.Linear(HIDDEN, w["out/b"].numel())
        with torch.no_grad():
            self.embedding.weight.copy_(w["embedding"])
            self.lstm.weight_ih_l0.copy_(w["lstm/w_ih"])
            self.lstm.weight_hh_l0.copy_(w["lstm/w_hh"])
            self.lstm.bias_ih_l0.copy_(w["lstm/b"])
            self.lstm.bias_hh_l0.zero_()
            self.out.weight.copy_(w["out/w"])
            self.out.bias.copy_(w["out/b"])
        self.lstm.bias_hh_l0.requires_grad_(False)  # the project's cell has one bias

    def loss(self, batch: dict[str, np.ndarray]) -> torch.Tensor:
        ids, labels = (torch.from_numpy(batch[n]).long() for n in ("ids", "labels"))
        y, _ = self.lstm(self.embedding(ids))
        return nn.functional.cross_entropy(self.out(y).flatten(0, 1), labels.flatten())


def main() -> None:
    torch.set_num_threads(1)  # the sums then have one order
    model, losses = Model(), []
    weights = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(weights)
    for k, batch in enumerate(batches()):
        optimizer.param_groups[0]["lr"] = rate(k)
        optimizer.zero_grad()
        loss = model.loss(batch)
        loss.backward()
        nn.utils.clip_grad_norm_(weights, CLIP)
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        last = model.loss(held_out()).item()
    print(f"{STEPS} steps of {T} x {B} characters: loss {losses[0]:.3f} -> {losses[-1]:.3f}")
    print(f"held out: {last:.4f} nats per character, torch {torch.__version__}")
    np.savez_compressed(
        CURVE, losses=np.array(losses, np.float32), held_out=np.float32(last), torch=np.array(torch.__version__)
    )


if __name__ == "__main__":
    main()
