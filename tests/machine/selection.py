"""Which tests are slow, in which order they run, and which of them a short run leaves out."""

from __future__ import annotations

import time

import pytest

# Minutes of software Vulkan together.
HEAVY_VULKAN = (
    "test_cudnn_dropout.py", "test_cudnn_golden.py", "test_tf_golden.py", "test_tf_compiled.py",
    "test_mps_compiled.py", "test_mps_golden.py", "test_training.py", "test_streaming.py",
    "test_scan_lowering.py", "test_lowered_ops.py", "test_lowering.py", "test_losses.py",
    "test_lstm_variants.py",
)  # fmt: skip


# Five seconds to half a minute each, where another test of the kind stays in the default run.
HEAVY = (
    "test_kernels.py::test_static_sizes[f64", "test_kernels.py::test_static_sizes[f32-sizes1",
    "test_kernels.py::test_static_sizes[f32-sizes0-cpu:x86-64", "test_random_bodies[1", "test_random_bodies[2",
    "test_narrow_weights_are_widened_in_registers[f16", "test_named_sizes[ends_in_product",
    "test_shared_blocks[1-", "test_shared_blocks[2-", "test_kernels_aarch64.py::",
    "test_compiled_at_sizes_that_vectorise", "test_cudnn_golden.py::test_cpu[1", "test_cudnn_golden.py::test_cpu[2",
    "test_cudnn_golden.py::test_cpu[3", "test_grad_compiled.py::test_every_feature[loops",
    "test_grad_compiled.py::test_autograd_of_pytorch[loops", "test_grad_modules.py::test_a_whole_graph",
    "test_lowered_ops.py::test_cpu[1", "test_lowered_ops.py::test_cpu[2", "test_lowered_ops.py::test_cpu[3",
    "test_lowered_ops.py::test_cpu[4", "test_lowered_ops.py::test_cpu[5",
    "test_modules_alone.py::test_samples_of_every_op", "steps-counted-vulkan",
    "test_mps_compiled.py::test_flags_on_the_processor", "test_mps_compiled.py::test_named_sizes_on_the_processor",
    "test_lstm_variants.py::test_gradients_equal_autograd",
    "test_named_sizes[two_phases", "test_narrow_weights_are_widened_in_registers[bf16",
    "test_tf_compiled.py::test_cpu[f32-64", "test_tf_compiled.py::test_cpu[bf16-8",
    "test_tf_compiled.py::test_cpu[f16-8",
    "test_tf_compiled.py::test_cpu[f64-7", "test_shared_blocks_finish_on_a_loaded_machine",
    "test_kernel_scratch.py::test_the_backward_of_two_directions", "test_random_gradients",
    "test_every_set_of_operands[mps.LSTM", "test_the_loss_follows_pytorch[cpu-adam",
    "test_grads_and_apply_make_a_step[cpu", "test_what_the_page_on_training_shows_runs",
    "test_kernels.py::test_named_sizes[counted", "test_every_step_draws_anew[zoneout_lstm",
    "test_block_lstm_follows_the_loss_curve", "test_parsing_names_what_is_missing",
    "test_single_row.py::test_one_row[lstm bidirectional", "test_loop_steps.py::test_named_sizes[0-",
    "test_loop_steps.py::test_named_sizes_vulkan[gradients", "test_the_tape_of_block_lstm_v2_is_wrong",
    "test_lowered_ops.py::test_cpu[6", "test_lowered_ops.py::test_cpu[7",
    "test_kernel_shifted.py::test_gradients_of_recurrent_weights[given",
    "test_gradients_of_one_sequence_with_a_length[gru", "test_directions_share_a_function[gru",
    "test_directions_share_a_function[rnn", "test_kernel_prologue.py::test_gradients[f64",
    "test_scan_lowering.py::test_forms[T-cpu", "test_modules_alone.py::test_zoo[tagger",
    "test_keras_layers[rnn_", "test_loop_steps.py::test_sizes_that_are_numbers[gradients",
    "test_kernels.py::test_named_sizes[masked", "test_every_length_compiles_and_is_right[8",
    "test_modules_alone.py::test_zoo[two_ways", "test_modules_alone.py::test_zoo[branches",
)  # fmt: skip


_started = time.monotonic()


# Their fixtures of a whole file take long: its tests stay together.
TOGETHER = ("test_training.py", "test_lstm_variants.py", "test_streaming.py")


def mark(items: list[pytest.Item]) -> None:
    """Mark what takes long `slow`: `pytest -m slow` runs it."""
    for item in items:
        vulkan = "vulkan" in item.nodeid.lower() and item.path.name in HEAVY_VULKAN
        if vulkan or any(word in item.nodeid for word in HEAVY):
            item.add_marker(pytest.mark.slow)


def in_turns(items: list[pytest.Item]) -> None:
    """A case of every test, then another of every test, ...: a run that ends early has run some of
    each. Which case comes first changes by the day."""
    cases: dict[object, list[pytest.Item]] = {}
    for item in items:
        marks = [item.get_closest_marker(m) is not None for m in ("slow", "long")]
        test = item.nodeid if item.path.name in TOGETHER else item.nodeid.partition("[")[0]
        cases.setdefault((test, *marks), []).append(item)
    day, turns = int(time.time() // 86400), {}
    for like in cases.values():
        turns.update({item: (i - day) % len(like) for i, item in enumerate(like)})
    items.sort(key=turns.__getitem__)


def leave_out(minutes: float) -> None:
    """Skip the test if this run has taken so long."""
    if time.monotonic() - _started > 60 * minutes:
        pytest.skip(f"the {minutes:g} minutes of --within are over")
