"""A character language model, trained in its compiled module on Shakespeare's sonnets, that then writes.

Same text, batches, first weights, optimizer and number of steps as PyTorch had; its recorded losses are
printed beside. The trained weights go into a package whose `step` takes one character and keeps h and c.

Run: python examples/char_lm.py       (about half a minute on two cores)
"""

import tempfile
import time
from pathlib import Path

import numpy as np
from char_lm_text import (
    CHARACTERS,
    CLIP,
    CURVE,
    GOAL,
    HIDDEN,
    SEED,
    STEPS,
    Arrays,
    batches,
    decoded,
    encoded,
    fresh,
    held_out,
    rate,
)  # fmt: skip

import lstm_ir as li

FIRST = 20  # steps in which roundings have not grown yet: the losses then agree to 1e-4
START, LENGTH, TEMPERATURE = "Shall I compare ", 400, 0.6


def logits(ids: li.Value, weights: Arrays, h0: li.Value | None = None, c0: li.Value | None = None):
    """ids [T, B] -> scores of the next character [T, B, V], h_n and c_n."""
    w = {name: li.weight(name, array) for name, array in weights.items()}
    x = li.embedding(w["embedding"], ids)
    y, h_n, c_n = li.lstm(x, w["lstm/w_ih"], w["lstm/w_hh"], w["lstm/b"], h0=h0, c0=c0)
    return li.dense(y, w["out/w"], w["out/b"]), h_n, c_n


def learner(weights: Arrays) -> li.Program:
    """`train` makes a step; `infer` gives the same loss, here called nats, and changes nothing."""
    ids, labels = (li.input(name, ("T", "B"), "i32") for name in ("ids", "labels"))
    loss = li.cross_entropy(logits(ids, weights)[0], labels)
    graph = li.Graph("char_lm", [ids, labels], {"loss": loss, "nats": loss})
    made = li.train_step(graph, "loss", li.adam("lr"), clip_norm=CLIP)
    return made.only("train", "infer")


def writer(weights: Arrays) -> li.Program:
    """One sequence at a time, with h and c kept between calls of `step`."""
    ids = li.input("ids", ("T", 1), "i32")
    h0, c0 = (li.input(name, (1, 1, HIDDEN)) for name in ("h0", "c0"))
    scores, h_n, c_n = logits(ids, weights, h0, c0)
    graph = li.Graph("writer", [ids, h0, c0], {"logits": scores[-1, 0], "h_n": h_n, "c_n": c_n})
    return li.stateful(graph, {"h0": "h_n", "c0": "c_n"})


def trained(recorded: Arrays) -> tuple[Arrays, float, list[float]]:
    """The weights after all steps, the loss on the held-out sonnets, and the losses on the way."""
    losses, start = [], time.perf_counter()
    with li.compile(learner(fresh())) as exe:
        print(f"compiled in {time.perf_counter() - start:.1f} s", flush=True)
        start = time.perf_counter()
        for k, batch in enumerate(batches()):
            out = exe.entries["train"](batch, lr=np.float32(rate(k)))
            losses.append(float(out["loss"]))
            if (k + 1) % 100 == 0:
                theirs = recorded["losses"][k - 99 : k + 1].mean()
                mean = np.mean(losses[-100:])
                print(f"step {k + 1:4}: loss {mean:.3f}, PyTorch {theirs:.3f}", flush=True)
        seconds = time.perf_counter() - start
        print(f"trained in {seconds:.1f} s, {1e3 * seconds / STEPS:.1f} ms for a step")
        last = float(exe.entries["infer"](held_out())["nats"])
        return {name: exe.state[name] for name in fresh()}, last, losses


def written(step, start: str, length: int) -> str:
    """`start`, continued character by character."""
    rng, ids = np.random.default_rng(SEED), list(encoded(start))
    new = ids
    for _ in range(length):
        scores = step(ids=np.array(new, np.int32)[:, None])["logits"].astype(np.float64)
        p = np.exp((scores - scores.max()) / TEMPERATURE)
        new = [int(rng.choice(len(CHARACTERS), p=p / p.sum()))]
        ids += new
    return decoded(ids)


def main() -> None:
    with np.load(CURVE, allow_pickle=False) as archive:
        recorded = {name: archive[name] for name in archive.files}
    weights, last, losses = trained(recorded)
    difference = float(np.abs(np.array(losses[:FIRST]) - recorded["losses"][:FIRST]).max())
    print(f"first {FIRST} steps: largest difference to PyTorch's losses {difference:.1e}")
    theirs = float(recorded["held_out"])
    print(f"held-out sonnets: {last:.3f} nats per character, PyTorch {theirs:.3f}, goal {GOAL}")
    assert difference < 1e-4
    assert last < GOAL
    assert theirs < GOAL
    with tempfile.TemporaryDirectory() as folder:
        package = li.export(writer(weights), Path(folder) / "writer.lirpkg")
        with li.load(package) as exe:
            print(written(exe.entries["step"], START, LENGTH))


if __name__ == "__main__":
    main()
