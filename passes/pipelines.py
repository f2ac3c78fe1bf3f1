"""Named pipelines, as texts, and the passes they are made of. Importing this registers every pass.

The order, and why:

    expand              composite and foreign ops first: later passes know core ops, primitives
    cse                 equal loops join while both still give all results: canonicalize would leave
                        a gradient's forward loop and the loss's own with different ones
    canonicalize, cse   one form of each thing; equal operands are one value, compared by identity
    fuse-cell           before layouts and directions: cells are stacked like written ops
    time-major, cse     before stacking: two layers must agree in layout and read one value of x
    stack-directions    before decompose, which makes one loop of both directions
    canonicalize, cse   joins of slices that stacking left, shared weights
    decompose           the stage border: primitives and scan from here on
    split-carries       before split-loops: layers whose states are one tensor cannot be told apart
    unroll-loops        before anything is asked of a body: a loop inside of it hides its ops
    canonicalize, cse   bodies in one form, loops that carry only what is read
    chunk-states        before split-loops, which does away with the loops without carries that it leaves
    split-loops         before what moves out of loops: the products between layers are then rows
    fuse-gates          before hoisting: one wide product leaves the loop, not four narrow ones
    fold-embeddings     a table's product by the joined weights, which the next pass moves out of the loop
    hoist-invariants    joined weights leave the loop, as hoist-projection needs them
    hoist-projection    not where the target has kernels, whose schedule places the projection
    sink-elementwise    when no loop is split and nothing leaves loops any more, whose rows it moves back
    turn-bodies         when no product is lifted any more: rows and columns where kernels have them
    canonicalize        what hoisting and turning left: unread operands, reshapes, transposes
    join-rows           when nothing changes any more what loops save for each other
    fuse-epilogues      when no loop is made or left any more: of a loop of one step canonicalize makes its body
    fold-constants, cse literals last, when nothing makes new ones

`precision` changes results by the rounding of weights, so it is in no target's pipeline: option
precision asks for it. It ends a pipeline; `widen-rows` begins one, as later passes do not know the op.
"""

from __future__ import annotations

from lstm_ir.passes import (
    chunk_states,
    cse,
    decompose,
    expand,
    fold_constants,
    fold_embeddings,
    fuse_epilogues,
    fuse_gates,
    hoist_invariants,
    hoist_projection,
    join_rows,
    precision,
    sink_elementwise,
    split_carries,
    split_loops,
    stack_directions,
    time_major,
    turn_bodies,
    unroll_loops,
    widen_rows,
)
from lstm_ir.passes.base import PASSES, Pass
from lstm_ir.passes.canonical import canonicalize
from lstm_ir.passes.cell import fuse_cell

MODULES = (
    canonicalize, chunk_states, cse, decompose, expand, fold_constants, fold_embeddings, fuse_cell, fuse_epilogues,
    fuse_gates, hoist_invariants, hoist_projection, join_rows, precision, sink_elementwise, split_carries, split_loops,
    stack_directions, time_major, turn_bodies, unroll_loops, widen_rows,
)  # fmt: skip
"""Where passes register themselves."""

CORE = "expand,cse,canonicalize,cse,fuse-cell,canonicalize,cse"
SCHEDULED = (
    "time-major,cse,stack-directions,canonicalize,cse,decompose,split-carries,unroll-loops,canonicalize,cse,"
    "chunk-states,split-loops,"
    "fuse-gates,fold-embeddings,hoist-invariants,hoist-projection,sink-elementwise,turn-bodies,canonicalize,join-rows,fuse-epilogues,fold-constants,cse"
)
NAMED = {"o0": "expand,decompose", "core": CORE, "default": f"{CORE},{SCHEDULED}"}
"""Pipelines that can be written by name, alone or among passes: `core,decompose`."""

PRECISIONS = {
    "bf16": ("", "precision{weights=bf16},canonicalize,cse"),
    "f16": ("", "precision{weights=f16},canonicalize,cse"),
    "int8": ("widen-rows", "precision{weights=int8},canonicalize,cse"),
    "int8-dynamic": ("widen-rows", "precision{weights=int8,rows=int8},canonicalize,cse"),
}
"""What begins and ends a pipeline, by the words of option precision; each word is a pipeline too."""

NAMED |= {word: ",".join(filter(None, (first, "default", last))) for word, (first, last) in PRECISIONS.items()}


def registry() -> dict[str, type[Pass]]:
    """Every pass by name."""
    return PASSES
