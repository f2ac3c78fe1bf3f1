"""A character model that writes: its own output feeds back in one `scan`, with draws, until every row has ended.

The model learns to spell the months. Then one call writes a batch of words: each step draws the next character of
every row (temperature, top_k, top_p), a row that has ended gives zeros, and the loop ends with its last row. The
largest logit, temperature 0, is compared with a Python loop over NumPy.

Run: python examples/generate.py
"""

import numpy as np

import lstm_ir as li

WORDS = ("January February March April May June July August September October November December").split()
LETTERS = ["\n", *sorted({c for word in WORDS for c in word})]  # 0 begins and ends a word
V, H, ROWS, LONGEST = len(LETTERS), 48, 24, 16
Arrays = dict[str, np.ndarray]


def fresh() -> Arrays:
    """The first weights: letters as vectors, a gated cell, and scores of the next letter."""
    rng = np.random.default_rng(0)
    shapes = {"letters": (V, H), "w": (H, 2 * H), "u": (H, 2 * H), "b": (2 * H,), "out": (H, V)}
    return {n: (rng.normal(size=s) / np.sqrt(s[0])).astype(np.float32) for n, s in shapes.items()}


def read(h: li.Value, letters: li.Value, w: dict[str, li.Value]) -> tuple[li.Value, li.Value]:
    """One letter of each row [B] -> the next state [B, H] and the scores of what follows [B, V]."""
    z = li.embedding(w["letters"], letters) @ w["w"] + h @ w["u"] + w["b"]
    gate, new = li.sigmoid(z[:, :H]), li.tanh(z[:, H:])
    h = h + gate * (new - h)
    return h, h @ w["out"]


def learner(weights: Arrays) -> li.Program:
    """The words, one letter behind the other, at once: [T, B]."""
    w = {n: li.weight(n, a) for n, a in weights.items()}
    given, wanted = (li.input(n, (LONGEST, len(WORDS)), "i32") for n in ("given", "wanted"))
    counts = li.input("counts", (LONGEST, len(WORDS)))
    _, scores = li.scan(lambda h, x: read(h, x, w), li.zeros((len(WORDS), H)), given)
    chosen = li.take_along_axis(li.log_softmax(scores), li.expand_dims(wanted, 2), 2)
    loss = -li.sum(li.squeeze(chosen, 2) * counts) / li.sum(counts)
    graph = li.Graph("months", [given, wanted, counts], {"loss": loss})
    return li.train_step(graph, "loss", li.adam(0.01)).only("train")


def lessons() -> Arrays:
    """What goes in, what comes out, and which places count."""
    ids = [[LETTERS.index(c) for c in f"\n{word}\n"] for word in WORDS]
    given, wanted, counts = (np.zeros((LONGEST, len(WORDS)), k) for k in ("i4", "i4", "f4"))
    for k, word in enumerate(ids):
        n = len(word) - 1
        given[:n, k], wanted[:n, k], counts[:n, k] = word[:-1], word[1:], 1
    return {"given": given, "wanted": wanted, "counts": counts}


def trained(steps: int = 200) -> Arrays:
    """The weights that spell the months."""
    batch = lessons()
    with li.compile(learner(fresh())) as exe:
        losses = [float(exe.entries["train"](batch)["loss"]) for _ in range(steps)]
        print(f"{steps} steps: loss {losses[0]:.2f}, then {losses[-1]:.2f}")
        return {n: exe.state[n] for n in fresh()}


def writer(weights: Arrays, **how: float) -> li.Graph:
    """A key -> letters [T, B] and how many each row has; one loop, which ends with its last row."""
    w, key = {n: li.weight(n, a) for n, a in weights.items()}, li.input("key", (2,), "u32")

    def step(state, _, number):
        h, letter = state
        h, scores = read(h, letter, w)
        letter = li.sample(scores, li.random_key(key, number), **how)
        return (h, letter), letter

    start = (li.zeros((ROWS, H)), li.zeros((ROWS,), "i32"))
    _, letters, counts = li.scan(
        step, start, length=LONGEST, with_step=True, until=lambda state, letter: li.equal(letter, 0)
    )
    return li.Graph("writer", [key], {"letters": letters, "counts": counts})


def words(found: Arrays) -> list[str]:
    """The rows as text, without their ends."""
    rows = zip(found["letters"].T, found["counts"], strict=True)
    return ["".join(LETTERS[i] for i in row[:n] if i) for row, n in rows]


def by_hand(w: Arrays) -> str:
    """The likeliest letter after the likeliest letter, by NumPy."""
    h, letter, text = np.zeros(H), 0, ""
    while True:
        z = w["letters"][letter] @ w["w"] + h @ w["u"] + w["b"]
        h = h + (np.tanh(z[H:]) - h) / (1 + np.exp(-z[:H]))
        letter = int((h @ w["out"]).argmax())
        if letter == 0:
            return text
        text += LETTERS[letter]


def main() -> None:
    weights = trained()
    with li.compile(writer(weights, temperature=0.0)) as exe:
        greedy = words(exe(key=np.zeros(2, np.uint32)))
    print(f"the likeliest letters: {greedy[0]}, by NumPy: {by_hand(weights)}")
    assert set(greedy) == {by_hand(weights)}
    graph = writer(weights, temperature=0.8, top_k=6, top_p=0.95)
    with li.compile(graph) as exe:
        for seed in (1, 2):
            key = np.array([0, seed], np.uint32)
            found = exe(key=key)
            assert np.array_equal(found["letters"], li.interpret(graph, key=key)["letters"])
            print(f"key {seed}, {found['counts'].max()} steps: {' '.join(words(found)[:8])}")
            spelled = sum(word in WORDS for word in words(found))
            print(f"of {ROWS} words {spelled} are months, {len(set(words(found)))} different ones")
            assert spelled > ROWS // 2


if __name__ == "__main__":
    main()
