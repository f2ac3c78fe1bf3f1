"""A character language model trained by li.fit: chunks of the sonnets with h and c carried, a schedule, checkpoints.

32 readers go through the sonnets side by side, chunk by chunk. After each pass the held-out sonnets are read; a run
that is stopped after half of its steps and resumed from its checkpoint ends with the same bits as one that is not.

Run: python examples/char_lm_fit.py       (about a minute on two cores)
"""

import tempfile
from pathlib import Path

import numpy as np
from char_lm_text import CHARACTERS, CLIP, HIDDEN, PEAK, Arrays, fresh, parts

import lstm_ir as li

T, B, EPOCHS = 64, 32, 8
LEARNED, HELD_OUT = parts()
CHUNKS = (len(LEARNED) - 1) // (T * B)
STEPS = EPOCHS * CHUNKS


def learner() -> li.Program:
    """`train` and `evaluate` read chunks [T, B]; what h and c are after one goes into the next."""
    w = {name: li.weight(name, array) for name, array in fresh().items()}
    ids, labels = (li.input(name, ("T", "B"), "i32") for name in ("ids", "labels"))
    h0, c0 = (li.input(name, (1, "B", HIDDEN)) for name in ("h0", "c0"))
    x = li.embedding(w["embedding"], ids)
    y, h_n, c_n = li.lstm(x, w["lstm/w_ih"], w["lstm/w_hh"], w["lstm/b"], h0=h0, c0=c0)
    scores = li.dense(y, w["out/w"], w["out/b"])
    accuracy = li.mean(li.convert(li.equal(li.argmax(scores, 2), labels), "f32"))
    outputs = {"loss": li.cross_entropy(scores, labels), "accuracy": accuracy, "h_n": h_n, "c_n": c_n}
    chunk = li.Graph("char_lm", [ids, labels, h0, c0], outputs)
    rate = li.schedules.warmup(STEPS // 10, li.schedules.cosine(PEAK, STEPS - STEPS // 10, PEAK / 100))
    optimizer = li.adamw(rate, weight_decay=0.01, groups={"*/b": {"weight_decay": 0.0}})
    program = li.train_step(
        li.stateful(chunk, {"h0": "h_n", "c0": "c_n"}), "loss", optimizer, outputs="accuracy", evaluate=True,
        clip_norm=CLIP,
    )  # fmt: skip
    return program.only("train", "evaluate", "reset")


def chunks(text: np.ndarray, rows: int) -> list[Arrays]:
    """The text cut into `rows` long strips, [T, rows] of each at a time."""
    count = (len(text) - 1) // (T * rows)
    ids, labels = (text[k : k + count * T * rows].reshape(rows, count, T) for k in (0, 1))
    return [{"ids": ids[:, k].T.copy(), "labels": labels[:, k].T.copy()} for k in range(count)]


def main() -> None:
    given, held_out = chunks(LEARNED, B), chunks(HELD_OUT, 4)
    with li.compile(learner()) as exe, tempfile.TemporaryDirectory() as folder:
        options = {"validation": held_out, "checkpoint": Path(folder) / "run.safetensors", "progress": False}
        history = li.fit(exe, given, epochs=EPOCHS, log=Path(folder) / "run.csv", **options)
        for r in history:
            v = r.values
            print(
                f"epoch {r.epoch}: loss {v['loss']:.3f}, held-out {v['validation/loss']:.3f}, "
                f"accuracy {v['validation/accuracy']:.3f}"
            )
        rows = (Path(folder) / "run.csv").read_text().splitlines()
        print(f"{len(rows) - 1} steps in the log, columns {rows[0]}")
        whole = dict(exe.state)
        with exe.session() as first, exe.session() as second:
            li.fit(first, given, steps=STEPS // 2 + 3, **options)
            again = li.fit(second, given, epochs=EPOCHS, resume=True, **options)
            same = all(np.array_equal(second.state[n], a) for n, a in whole.items())
        print(f"stopped after step {STEPS // 2 + 3} and resumed: {'the same' if same else 'other'} bits")
        guess = np.log(len(CHARACTERS))
        print(f"held-out sonnets: {history['validation/loss'][-1]:.3f} nats per character, a guess {guess:.3f}")
        assert same
        assert again.losses == history.losses[-len(again.losses) :]
        assert history["validation/loss"][-1] < 2.3


if __name__ == "__main__":
    main()
