"""Texts that the parser refuses, by the name of their golden message."""

from __future__ import annotations

TEXTS = {
    "text_empty": "",
    "text_ends_early": "graph @g(%x: f32[3]) {\n  %0 = tanh(%x) : f32[3]\n",
    "text_stray_character": "graph @g(%x: f32[3]) {\n  %0 = tanh(%x) ! f32[3]\n  return %0\n}\n",
    "text_unknown_op": "graph @g(%x: f32[3]) {\n  %0 = tanhh(%x) : f32[3]\n  return %0\n}\n",
    "text_unknown_attribute":
        "graph @g(%x: f32[3]) {\n  %0 = tanh(%x) {speed=3} : f32[3]\n  return %0\n}\n",
    "text_missing_attribute":
        "graph @g(%x: f32[3,5]) {\n  %0 = transpose(%x) : f32[5,3]\n  return %0\n}\n",
    "text_old_word_of_clip_gradient":
        "graph @g(%x: f32[3,2,4], %w: f32[1,4,1]) {\n  %0, %1, %2 = lstm(%x, _, %w, _, _, _, _, _, _,"
        " _, _) {clip_gradient=\"true\"} : f32[3,2,1], f32[1,2,1], f32[1,2,1]\n  return %0\n}\n",
    "text_wrong_type": "graph @g(%x: f32[3]) {\n  %0 = tanh(%x) : f32[4]\n  return %0\n}\n",
    "text_cycle": "graph @g(%x: f32[3]) {\n  %0 = add(%x, %1) : f32[3]\n  %1 = tanh(%0) : f32[3]\n"
                  "  return %1\n}\n",
    "text_defined_twice":
        "graph @g(%x: f32[3]) {\n  %0 = tanh(%x) : f32[3]\n  %0 = abs(%x) : f32[3]\n"
        "  return %0\n}\n",
    "text_two_outputs_of_one_name": "graph @g(%x: f32[3]) {\n  return y=%x, y=%x\n}\n",
    "text_two_inputs_of_one_name": "graph @g(%x: f32[3], %x: f32[3]) {\n  return %x\n}\n",
    "text_unknown_dtype": "graph @g(%x: f33[3]) {\n  return %x\n}\n",
    "text_huge_size": f"graph @g(%x: f32[{2**62}]) {{\n  return %x\n}}\n",
    "text_huge_product": f"graph @g(%x: f32[{2**31},{2**31},4]) {{\n  return %x\n}}\n",
    "text_huge_number": f"graph @g(%x: f32[{'9' * 1900}]) {{\n  return %x\n}}\n",
    "text_nested_dimension": f"graph @g(%x: f32[{'(' * 900}T{')' * 900}]) {{\n  return %x\n}}\n",
    "text_literal_of_wrong_size":
        "graph @g() {\n  %0 = constant() {value=[1.0, 2.0]} : f32[3]\n  return %0\n}\n",
    "text_literal_beyond_its_type":
        "graph @g() {\n  %0 = constant() {value=[1.0, 70000.0]} : f16[2]\n  return %0\n}\n",
    "text_integer_beyond_its_type":
        "graph @g() {\n  %0 = constant() {value=300} : i8[]\n  return %0\n}\n",
    "text_wrong_number_of_operands":
        "graph @g(%x: f32[3]) {\n  %0 = add(%x) : f32[3]\n  return %0\n}\n",
}  # fmt: skip


def nested_scans(depth: int) -> str:
    """A loop in a loop in a loop …"""
    inner = "graph @b(%step: i32[], %h: f32[3]) { return %h }"
    head = "graph @b(%step: i32[], %h: f32[3]) { %0 = scan([], [%h], [], _) {length=2, reverse=[]}"
    return "graph @g(%h: f32[3]) {\n" + "".join(
        ["%0 = scan([], [%h], [], _) {length=2, reverse=[]} : [f32[3]], [] with body {"]
        + [head + " : [f32[3]], [] with body {"] * (depth - 1)
        + [inner]
        + ["} return %0 }"] * (depth - 1)
        + ["}\n  return %0\n}\n"]
    )  # fmt: skip


TEXTS["text_thousand_scans"] = nested_scans(1000)
