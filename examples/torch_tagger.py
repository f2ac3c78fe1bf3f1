"""A tagger of PyTorch over packed sequences: imported, trained on, written back, exported to a package, and served.

The task is to say which letters of a line were capitals, from the line in small letters (Shakespeare's sonnets). The
module packs its rows by their lengths; in the graph the layer has `lengths`, and no row is padded in the sums.

Run: python examples/torch_tagger.py        (needs PyTorch: pip install torch)
"""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import lstm_ir as li

TEXT = Path(__file__).parent / "data" / "sonnets.txt"
SIGNS = "\0abcdefghijklmnopqrstuvwxyz ',.;:-!?()"  # 0 pads
ROWS, TOLERANCE = 32, 1e-4
Batch = dict[str, np.ndarray]


def batches(seed: int, count: int, test: bool = False) -> list[Batch]:
    """Letters `ids` and `capital` [B,T], the longest row first, and lengths; every tenth line is for the test."""
    lines = [line.strip() for line in TEXT.read_text(encoding="utf-8").splitlines() if line.strip()]
    lines = [line for k, line in enumerate(lines) if (k % 10 == 0) is test]
    rng, made = np.random.default_rng(seed), []
    for _ in range(count):
        some = sorted(rng.choice(lines, ROWS), key=len, reverse=True)
        ids, capital = (np.zeros((ROWS, len(some[0])), np.int64) for _ in range(2))
        for row, line in enumerate(some):
            ids[row, : len(line)] = [max(0, SIGNS.find(c)) for c in line.lower()]
            capital[row, : len(line)] = [c.isupper() for c in line]
        made.append({"ids": ids, "lengths": np.array([len(line) for line in some]), "capital": capital})
    return made


def tagger(torch: Any) -> Any:
    """The module: letters to scores [B,T,2]."""
    rnn = torch.nn.utils.rnn

    class Tagger(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.letters = torch.nn.Embedding(len(SIGNS), 12)
            self.lstm = torch.nn.LSTM(12, 24, batch_first=True, bidirectional=True)
            self.scores = torch.nn.Linear(48, 2)

        def forward(self, ids: Any, lengths: Any) -> Any:
            packed = rnn.pack_padded_sequence(self.letters(ids), lengths, batch_first=True)
            rows, _ = rnn.pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=ids.shape[1])
            return self.scores(rows)

    torch.manual_seed(1)
    return Tagger()


def f1(scores: np.ndarray, batch: Batch) -> float:
    """The F1 score of the capitals: 1 where all of them are found, and nothing else."""
    inside = np.arange(scores.shape[1]) < batch["lengths"][:, None]
    said, capital = (scores.argmax(-1) == 1) & inside, batch["capital"] == 1
    return float(2 * (said & capital).sum() / (said.sum() + capital.sum()))


def learner(graph: li.Graph) -> li.Program:
    """A program that trains the graph; letters behind the end of a row do not count."""
    ids, lengths = graph.params
    capital = li.input("capital", ids.shape, "i64")
    inside = li.less(li.iota(ids.shape, 1, "i64"), li.expand_dims(lengths, 1))
    right = li.log_softmax(graph.outputs[0])
    likely = li.squeeze(li.take_along_axis(right, li.expand_dims(capital, 2), 2), 2)
    weight = li.select(inside, 1.0 + 8.0 * li.convert(capital, "f32"), 0.0)  # capitals are rare
    loss = -li.sum(likely * weight) / li.sum(weight)
    return li.train_step(li.Graph("learner", [ids, lengths, capital], {"loss": loss}), "loss", li.adam(0.01))


def main() -> None:
    """Import, train on, write back, export, serve; each result beside PyTorch's."""
    try:
        import torch
    except ImportError as e:
        raise SystemExit(f"this example needs PyTorch: pip install torch ({e})") from None
    module, (test,) = tagger(torch).eval(), batches(9, 1, test=True)

    def by_torch() -> np.ndarray:
        with torch.no_grad():
            return module(*(torch.tensor(test[n]) for n in ("ids", "lengths"))).numpy()

    example = tuple(torch.tensor(test[n]) for n in ("ids", "lengths"))
    graph = li.from_torch(module, example, sizes={"ids": ("B", "T"), "lengths": ("B",)})
    given = {n: test[n] for n in graph.input_names}
    (name,) = graph.output_names
    assert np.abs(li.interpret(graph, given)[name] - by_torch()).max() < TOLERANCE
    print(f"imported from PyTorch: F1 {f1(by_torch(), test):.2f}")

    with li.compile(learner(graph)) as exe:
        for batch in batches(1, 200):
            exe.entries["train"](batch)
        li.to_torch(exe, module)
        trained = li.with_weights(graph, exe)
    after = by_torch()
    assert f1(after, test) > 0.7
    print(f"trained on, in PyTorch again: F1 {f1(after, test):.2f}")

    with tempfile.TemporaryDirectory() as folder:
        package = li.export(trained, Path(folder) / "tagger.lirpkg", ["cpu:host"])
        with li.load(package) as served, li.Batcher(served, max_delay=0.02) as batcher:
            lengths = test["lengths"]
            rows = [{"ids": test["ids"][k : k + 1, :n], "lengths": lengths[k : k + 1]} for k, n in enumerate(lengths)]
            calls = [batcher.submit(row) for row in rows]
            off = max(np.abs(c.result()[name][0] - after[k, : lengths[k]]).max() for k, c in enumerate(calls))
        assert off < TOLERANCE
        print(f"served from {package.name}: {len(rows)} rows of unequal lengths, largest difference {off:.1e}")


if __name__ == "__main__":
    main()
