"""Beam search as a `scan`: the most probable words of a character model, best first, in one call.

Each step scores every continuation of every beam, keeps the WIDTH best (`top_k`), and takes the states of their
parents. A beam that has ended keeps its score; the loop ends when all have. A second loop goes from the last step that
ran to the first and reads the words back through their parents. The same search by NumPy stands beside.

Run: python examples/beam_search.py
"""

import numpy as np
from generate import LETTERS, LONGEST, WORDS, Arrays, H, V, read, trained

import lstm_ir as li

WIDTH = 8
NEVER = -1e30


def searcher(weights: Arrays) -> li.Graph:
    """The first letter -> letters [T, WIDTH], how many, and the log probability of each beam."""
    w, first = {n: li.weight(n, a) for n, a in weights.items()}, li.input("first", (), "i32")
    begun, _ = read(li.zeros((WIDTH, H)), li.zeros((WIDTH,), "i32"), w)

    def step(state, _):
        h, letter, score, ended = state
        h, scores = read(h, letter, w)
        stays = li.where(li.equal(li.arange(V), 0), 0.0, NEVER)  # an ended beam goes on with its end alone
        steps = li.where(li.expand_dims(ended, 1), stays, li.log_softmax(scores))
        score, place = li.top_k(li.reshape(li.expand_dims(score, 1) + steps, (WIDTH * V,)), WIDTH)
        parent, letter = place / V, place % V
        ended = li.equal(letter, 0)
        return (li.take(h, parent), letter, score, ended), (parent, letter)

    alone = li.where(li.equal(li.arange(WIDTH), 0), 0.0, NEVER)  # all beams begin alike: one counts
    start = (begun, li.broadcast_to(first, (WIDTH,)), alone, li.zeros((WIDTH,), "i1"))
    (_, _, score, _), (parents, letters), steps = li.scan(
        step, start, length=LONGEST, until=lambda state, y: li.min(li.convert(state[3], "i32")) > 0
    )

    def back(beam, row):
        parent, letter = row
        return li.take(parent, beam), li.take(letter, beam)

    _, found = li.scan(back, li.arange(WIDTH), (parents, letters), reverse=True, count=steps)
    return li.Graph("beams", [first], {"letters": found, "steps": steps, "score": score})


def by_hand(w: Arrays, first: int) -> list[tuple[str, float]]:
    """The same search over lists, by NumPy in double precision."""

    def advance(h, letter):
        z = w["letters"][letter].astype(float) @ w["w"] + h @ w["u"] + w["b"]
        h = h + (np.tanh(z[H:]) - h) / (1 + np.exp(-z[:H]))
        scores = h @ w["out"]
        return h, scores - scores.max() - np.log(np.exp(scores - scores.max()).sum())

    beams = [(LETTERS[first], 0.0, advance(np.zeros(H), 0)[0], first)]
    for _ in range(LONGEST):
        longer = []
        for text, score, h, letter in beams:
            if letter == 0:
                longer.append((text, score, h, 0))
                continue
            h, gains = advance(h, letter)
            longer += [(text + LETTERS[i].strip(), score + g, h, i) for i, g in enumerate(gains)]
        beams = sorted(longer, key=lambda b: -b[1])[:WIDTH]
        if not any(letter for *_, letter in beams):
            break
    return [(text, score) for text, score, _, _ in beams]


def main() -> None:
    weights = trained()
    graph = searcher(weights)
    with li.compile(graph) as exe:
        for initial in "JAM":
            first = LETTERS.index(initial)
            found = exe(first=np.int32(first))
            texts = [initial + "".join(LETTERS[i] for i in row if i) for row in found["letters"].T]
            shown = [f"{t} {np.exp(s):.2f}" for t, s in zip(texts, found["score"], strict=True)]
            print(f"{initial}, {int(found['steps'])} steps: {', '.join(shown[:3])}")
            want = by_hand(weights, first)
            assert texts == [text for text, _ in want]
            assert np.allclose(found["score"], [score for _, score in want], atol=1e-3)
            assert {w for w in WORDS if w[0] == initial} == set(texts[: sum(w[0] == initial for w in WORDS)])
        print("all beams as NumPy finds them")


if __name__ == "__main__":
    main()
