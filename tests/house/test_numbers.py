"""Tuned numbers have one home in each folder; every number that stands at a file's top has its kind here."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from paths import ROOT, files
from syntax import parsed

pytestmark = pytest.mark.xdist_group("syntax")

# Files of tuned numbers alone: where several files of a folder read them.
HOMES = ("machine.py", "tuned.py")
ALL = "*"  # every number of the file that no other kind has
# What a comment says of a tuned number: figures, a reason in place of them, or that they are lost.
SAID = re.compile(r"measured|reasoned|figure not kept", re.IGNORECASE)
DEFAULTS = ("Attr", "define", "_define")  # numbers among their operands are an op's meaning
KINDS: dict[str, dict[str, str]] = {
    # found by measuring, or reasoned where nothing was measured: from which size on another form gains
    "tuned": {
        "lstm_ir/ops/primitive/planes.py": "PHASES_APART GROUPS_APART JOINED",
        "lstm_ir/ops/scan/tuned.py": ALL,
        "lstm_ir/serving/large_work.py": "LARGE TENSOR_BYTES",
        "passes/tuned.py": ALL,
        "backends/compile/grouping.py": "GROUPS FROM ANY",
        "backends/files/digest.py": "SMALL",
        "backends/kernels/body/tuned.py": ALL,
        "backends/kernels/cpu/machine.py": ALL,
        "backends/kernels/gpu/machine.py": ALL,
        "backends/kernels/text/spin.py": "PAUSES",
        "backends/lower/tuned.py": ALL,
        "backends/run/threads/choice.py": "SMALL HELPED LARGE LOOPS HELPERS",
        "backends/run/tuned.py": ALL,
    },
    # the most that is taken, kept, looked through or shown
    "limit": {
        "lstm_ir/bench/measure.py": "LIMIT APART",
        "lstm_ir/cli/model_options.py": "_DIGITS",
        "lstm_ir/cli/packages.py": "_KEY_LIMIT",
        "lstm_ir/compile_advice.py": "_OPS",
        "lstm_ir/importers/counted.py": "_DEPTH",
        "lstm_ir/importers/keras/archive.py": "MAX_TEXT MAX_DEPTH MAX_BYTES MAX_EXPANSION MAX_MEMBERS",
        "lstm_ir/importers/keras/config.py": "MAX_NAME DEPTH",
        "lstm_ir/importers/keras/hdf5.py": "SECONDS RATE BUSY_FACTOR MEMORY",
        "lstm_ir/importers/keras/hdf5_child.py": "MAX_OBJECTS MAX_BYTES MAX_EXPANSION MAX_DEPTH",
        "lstm_ir/importers/keras/walk.py": "DEPTH CALLS",
        "lstm_ir/importers/fourier.py": "LONGEST",
        "lstm_ir/importers/known.py": "MAX_ELEMENTS MAX_COMPARED MAX_BITS SMALL MAX_BYTES MAX_WORK",
        "lstm_ir/importers/lists.py": "MAX_ITEMS",
        "lstm_ir/importers/onnx/model.py": "DEPTH",
        "lstm_ir/importers/onnx/reading.py": "MAX_NODES",
        "lstm_ir/importers/on_sizes.py": "MOST_AXES",
        "lstm_ir/importers/operands.py": "MAX_LISTED",
        "lstm_ir/importers/pools.py": "MAX_TAPS MAX_REACH",
        "lstm_ir/importers/report_text.py": "WIDTH SHOWN",
        "lstm_ir/importers/tensorflow/bundle.py": "MAX_SHARDS",
        "lstm_ir/importers/tensorflow/checksum.py": "_PART",
        "lstm_ir/importers/tensorflow/own_gradients.py": "_MOST",
        "lstm_ir/importers/tensorflow/ports.py": "_SHOWN",
        "lstm_ir/importers/tensorflow/reading.py": "_NODES",
        "lstm_ir/importers/tensorflow/sorted_table.py": "MAX_BYTES MAX_KEYS",
        "lstm_ir/importers/tensorflow/tensors.py": "MAX_ELEMENTS",
        "lstm_ir/importers/tensorflow/walk.py": "DEPTH MAX_RUNS",
        "lstm_ir/importers/torch/assumptions.py": "MOST",
        "lstm_ir/streaming/start.py": "MAX_BYTES",
        "lstm_ir/importers/torch/functional.py": "_ROUNDS",
        "lstm_ir/importers/torch/walk.py": "DEPTH",
        "lstm_ir/ir/dims.py": "DIVISORS LIMIT TERMS CHARACTERS TOKENS",
        "lstm_ir/ir/foreign_errors.py": "_SHOWN",
        "lstm_ir/ir/parser.py": "DIGITS",
        "lstm_ir/ir/printer.py": "INLINE",
        "lstm_ir/ir/signature.py": "_MEMO",
        "lstm_ir/ir/signature_json.py": "_TEXT _ITEMS",
        "lstm_ir/ir/temporary.py": "_TRIES",
        "lstm_ir/ir/spread.py": "MOST_TERMS",
        "lstm_ir/ir/verify.py": "DEPTH",
        "lstm_ir/ops/core/roll.py": "STEPS",
        "lstm_ir/ops/core/same_padding.py": "WIDEST",
        "lstm_ir/ops/nn/sampling.py": "_COLDEST _HOTTEST",
        "lstm_ir/ops/scan/matrix_state.py": "MOST_WRITES",
        "lstm_ir/parallel/trainer.py": "_STARTS",
        "lstm_ir/serving/connections.py": "_LEAST _FIRST _MOST",
        "lstm_ir/serving/routes.py": "_PART",
        "lstm_ir/serving/rows.py": "_WHOLE",
        "lstm_ir/serving/served_model.py": "MAX_STEPS",
        "lstm_ir/serving/session_keeper.py": "_CHARACTERS",
        "lstm_ir/serving/tensors.py": "_RANK _SIZE _PIECE",
        "lstm_ir/verification/cold.py": "LIMIT",
        "lstm_ir/verification/comparison.py": "MAX_PASSED_OVER",
        "lstm_ir/verification/draw.py": "MAX_ELEMENTS",
        "lstm_ir/view/drawing.py": "LONGEST",
        "lstm_ir/view/notebook.py": "NODES ROWS LETTERS",
        "lstm_ir/view/picture.py": "SHOWN",
        "lstm_ir/view/summary.py": "ROWS LETTERS",
        "passes/chunk_states.py": "LOOPS",
        "passes/expand.py": "DEPTH",
        "passes/rewrite.py": "ROUNDS",
        "backends/compile/cache.py": "LIMIT",
        "backends/compile/child.py": "_MOST",
        "backends/compile/compiler.py": "_KEPT DISPATCH_STACK",
        "backends/files/archive.py": "_LIMIT _MODULES _LISTED",
        "backends/files/manifest.py": "_ENTRIES",
        "backends/files/npz.py": "ANY RATIO",
        "backends/files/packed_graph.py": "TEXT_LIMIT",
        "backends/files/safetensors.py": "_HEADER",
        "backends/kernels/cpu/scratch.py": "SPARE",
        "backends/memory.py": "RANK ARRAYS _PIECE",
        "backends/queue.py": "MOST_ARGUMENTS",
        "backends/run/contexts.py": "LIMIT",
        "backends/run/call_plan.py": "_SHAPES _SLOT_BYTES",
        "backends/run/profile.py": "LIMIT",
        "backends/run/threads/stacks.py": "CALLER WORKER",
    },
    # seconds or looks until something is given up, or looked at again: no call is faster by them
    "wait": {
        "lstm_ir/fitting/progress.py": "_PAUSE",
        "lstm_ir/parallel/links.py": "_EXIT_SECONDS",
        "lstm_ir/parallel/worker.py": "_LOOK",
        "lstm_ir/serving/connections.py": "_PERIOD _RATE _LONG _PROBE",
        "lstm_ir/serving/durations.py": "LONGEST",
        "lstm_ir/serving/run.py": "_POLL _KEEP_ALIVE _RENEWAL",
        "lstm_ir/serving/scheduler.py": "_TIDY_SECONDS",
        "backends/compile/child.py": "_GRACE",
        "backends/process.py": "WAIT _PAUSE",
        "lstm_ir/ir/at_fork.py": "WAIT _PAUSE",
        "backends/queue.py": "IDLE_POLL",
        "backends/run/contexts.py": "_POLL",
        "backends/run/helper_pool.py": "_END _PAUSE",
    },
    # how something is measured, tried or shown: rounds, sizes, seeds
    "method": {
        "lstm_ir/bench/fma_peak.py": "CHAINS INNER OUTER SCALE SHIFT ROUNDS",
        "lstm_ir/bench/lists.py": "STREAMS MODELS",
        "lstm_ir/bench/measure.py": "_ROUNDS _CALLS",
        "lstm_ir/bench/points.py": "POINTS",
        "lstm_ir/bench/whole/model.py": "RATE CLIP BETAS EPSILON",
        "lstm_ir/bench/whole/speech.py": "WINDOW STRIDE EDGE",
        "lstm_ir/demo/model.py": "HIDDEN BATCH EPOCHS SEED PEAK WARM SHAPES",
        "lstm_ir/demo/run.py": "LEAST TOLERANCE SECONDS",
        "lstm_ir/fitting/progress.py": "_SIZE",
        "lstm_ir/importers/torch/assumptions.py": "NUMBERS FEW",
        "lstm_ir/measurement/side_by_side.py": "REST TURN CALLS",
        "lstm_ir/serving/row_check.py": "_DRAWS _STEPS _PADDED _SHORT _SEED",
        "lstm_ir/training/memory.py": "PROBE",
        "lstm_ir/verification/cold.py": "STARTS",
        "lstm_ir/verification/draw.py": "REACH TRIES PLAIN",
        "lstm_ir/verification/streams.py": "CALLS SEED PARTS",
        "lstm_ir/verification/hardware.py": "T B I H",
        "backends/run/helper_pool.py": "_TRIAL",
        "backends/run/profile.py": "RUNS SECONDS SLOW",
    },
    # sizes of pictures
    "drawing": {
        "lstm_ir/bench/report.py": "ROW LEFT WIDTH TOP SPAN",
        "lstm_ir/view/drawing.py": "CHAR SMALL LINE ROW PAD SIDE",
        "lstm_ir/view/layers.py": "BESIDE LANE GAP SWEEPS ROUNDS STRAIGHT MIDDLES WIDER MANY",
        "lstm_ir/view/picture.py": "MARGIN HEAD SCREEN",
        "lstm_ir/view/profile_picture.py": "BAR LEFT GAP",
        "lstm_ir/view/times.py": "STEPS",
    },
    # of an equation, a rounding or an element type
    "mathematics": {
        "lstm_ir/importers/keras/handlers/activations.py": "SIXTH",
        "lstm_ir/importers/keras/handlers/dropout.py": "_ALPHA _SCALE",
        "lstm_ir/ops/core/activations.py": "TABLE",
        "lstm_ir/ops/mps/activations.py": "HARD_SLOPE HARD_OFFSET",
        "lstm_ir/ops/nn/ctc.py": "IMPOSSIBLE",
        "lstm_ir/ops/nn/random.py": "DIGITS",
        "lstm_ir/ops/nn/threefry.py": "ROTATIONS PARITY ROUNDS",
        "lstm_ir/ops/primitive/activations.py": "SELU_ALPHA SELU_SCALE",
        "lstm_ir/ops/primitive/division.py": "_WHOLE",
        "lstm_ir/ops/scan/order.py": "LEVELS",
        "lstm_ir/serving/row_check.py": "_BOUND",
        "lstm_ir/training/memory.py": "UNITS",
        "lstm_ir/verification/compare.py": "LIMITS",
        "passes/cell/activation.py": "ROUNDING",
        "passes/int8_products.py": "LARGEST PLACES TERMS DIRECTIONS",
        "backends/emit/decisions.py": "_EDGES",
        "backends/kernels/cpu/words.py": "OFFSET",
        "backends/kernels/text/evaluate.py": "_REDUCE",
        "backends/lower/erf.py": "_P _Q",
    },
    # of a file, an interface, another library, an instruction set or a device; a place, or a mark that is no size
    "format": {
        "lstm_ir/cli/group.py": "INTERRUPTED TERMINATED",
        "lstm_ir/importers/conventions.py": "CONVENTIONS",
        "lstm_ir/importers/keras/older.py": "FIRST",
        "lstm_ir/importers/onnx/handlers/control.py": "BODIES",
        "lstm_ir/importers/onnx/handlers/recurrent.py": "ACTIVATIONS LSTM GRU RNN",
        "lstm_ir/importers/onnx/handlers/sequences.py": "F32",
        "lstm_ir/importers/onnx/narrow.py": "LIMITS",
        "lstm_ir/importers/onnx/reading.py": "OPSETS MAX_BYTES",
        "lstm_ir/importers/slices.py": "TO_THE_END",
        "lstm_ir/importers/table.py": "ALL",
        "lstm_ir/importers/tensorflow/checksum.py": "_POLYNOMIAL _MASK",
        "lstm_ir/importers/tensorflow/reading.py": "MAX_BYTES",
        "lstm_ir/importers/tensorflow/sorted_table.py": "_FOOTER _TRAILER",
        "lstm_ir/importers/tensorflow/tensors.py": "COMPLEX STRING RESOURCE VARIANT NAMES DTYPES _REFERENCE",
        "lstm_ir/importers/torch/handlers/layers.py": "_REDUCTIONS",
        "lstm_ir/importers/torch/handlers/recurrent.py": "KINDS",
        "lstm_ir/importers/torch/handlers/shapes.py": "TO_THE_END",
        "lstm_ir/ir/carry_places.py": "ELSEWHERE",
        "lstm_ir/ir/device_array.py": "HOST",
        "lstm_ir/ir/foreign_arrays.py": "_HOST _DEVICES _BFLOAT _UINT",
        "lstm_ir/ir/location.py": "UNKNOWN",
        "lstm_ir/ops/core/build.py": "RANKS",
        "lstm_ir/ops/cudnn/contract.py": "DIRECTIONS",
        "lstm_ir/ops/cudnn/layout.py": "GATES",
        "lstm_ir/ops/cudnn/weights.py": "KERAS_GATES",
        "lstm_ir/serving/inference.py": "_NUMBER",
        "lstm_ir/serving/queueing.py": "_LENGTH",
        "lstm_ir/serving/served_model.py": "GONE",
        "lstm_ir/serving/stream.py": "_LENGTH RESTART POLICY AWAY",
        "lstm_ir/view/c_header.py": "HAL",
        "backends/kernels/body/sums.py": "TERMS REGISTERS",
        "backends/kernels/cpu/prologue.py": "WRITTEN",
        "passes/canonical/unread.py": "_OUTPUTS",
        "passes/circles.py": "FIXED BEFORE",
        "passes/lift.py": "_FIXED",
        "backends/compile/cache.py": "_HEADER",
        "backends/compile/compiler.py": "_NOTE",
        "backends/compile/start_child.py": "PR_SET_PDEATHSIG",
        "backends/emit/flat.py": "ALIGN",
        "backends/emit/resources.py": "_NO_LIMIT",
        "backends/emit/unaligned.py": "_VECTOR",
        "backends/files/archive.py": "_HEADER _ZIP64 _PADDING _ALIGNED",
        "backends/files/manifest.py": "FORMAT _READ",
        "backends/files/npy.py": "_LENGTH_BYTES _HEADER",
        "backends/kernels/body/plan.py": "PAIR WORD",
        "backends/kernels/cpu/ending.py": "NEVER",
        "backends/kernels/cpu/team.py": "FLAG UNBOUNDED",
        "backends/kernels/cpu/words.py": "_PAIRS _SIGNED _UNSIGNED _SIGNED_FEATURE",
        "backends/kernels/gpu/machine.py": "GROUPS",
        "backends/kernels/helpers/publish.py": "_BYTES _WORD _WORDS",
        "backends/kernels/text/bound.py": "_DEPTH",
        "backends/kernels/text/memory.py": "ELEMENT_BYTES",
        "backends/kernels/text/text.py": "_STEP",
        "backends/memory.py": "ALIGNMENT LINE",
        "backends/run/helper_pool.py": "_CLOSED",
        "backends/queue.py": "PUBLISHED SERVING NEXT_GROUP CLOSED POLLS CALL ENTRY BYTES",
        "backends/run/devices.py": "_MAJOR _MINOR",
        "backends/run/runtime.py": "MAX_THREADS",
        "backends/run/transfer.py": "_DLPACK",
        "backends/targets/targets.py": "_L1 _L2 _L2_OF",
    },
}


def has_number(n: ast.expr | None) -> bool:
    """Whether a value is made of a number that is written out."""
    match n:
        case ast.Constant():
            return type(n.value) in (int, float)
        case ast.Call():
            operands = [*n.args, *(k.value for k in n.keywords)]
            return ast.unparse(n.func) not in DEFAULTS and any(map(has_number, operands))
        case ast.UnaryOp():
            return has_number(n.operand)
        case ast.BinOp():
            return has_number(n.left) or has_number(n.right)
        case ast.Tuple() | ast.List() | ast.Set():
            return any(map(has_number, n.elts))
        case ast.Dict():
            return any(map(has_number, [*n.keys, *n.values]))
    return False


def assigned(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Names at a file's top whose values have numbers, and the line that each begins on."""
    for n in tree.body:
        if isinstance(n, (ast.Assign, ast.AnnAssign)) and has_number(n.value):
            for target in n.targets if isinstance(n, ast.Assign) else [n.target]:
                for e in target.elts if isinstance(target, ast.Tuple) else [target]:
                    yield ast.unparse(e), n.lineno


@cache
def numbers() -> dict[str, dict[str, int]]:
    """By file: the names of its numbers, and their lines."""
    paths = (*files("lstm_ir"), *files("passes"), *files("backends"))
    found = {p.relative_to(ROOT).as_posix(): dict(assigned(parsed(p))) for p in paths}
    return {path: names for path, names in found.items() if names}


def tuned() -> dict[str, dict[str, int]]:
    """The tuned numbers, by file."""
    found, out = numbers(), {}
    for path, listed in KINDS["tuned"].items():
        others = {n for kind, files_of in KINDS.items() if kind != "tuned" for n in files_of.get(path, "").split()}
        names = set(found[path]) - others if listed == ALL else set(listed.split())
        out[path] = {n: found[path][n] for n in names}
    return out


def test_every_number_has_one_kind() -> None:
    listed = defaultdict(list)
    for kind, places in KINDS.items():
        for path, names in places.items():
            for name in names.split():
                assert name != ALL or kind == "tuned", f"{kind}: {path}"
                listed[path].append(name)
    for path, found in numbers().items():
        own = [n for n in listed[path] if n != ALL]
        assert len(own) == len(set(own)), f"{path}: a number of two kinds"
        assert ALL in listed[path] or set(found) == set(own), f"{path}: {set(found) ^ set(own)}: say their kind here"
        assert set(own) <= set(found), f"{path}: {set(own) - set(found)} is gone"
    assert set(listed) == set(numbers()), "take files without numbers out of the table"


def test_a_folder_has_its_tuned_numbers_in_one_file() -> None:
    places = defaultdict(list)
    for path in tuned():
        places[Path(path).parent].append(path)
    assert {folder: paths for folder, paths in places.items() if len(paths) > 1} == {}
    homes = {path for path in numbers() if Path(path).name in HOMES}
    assert homes == {path for path, names in KINDS["tuned"].items() if names == ALL}


def test_a_tuned_number_says_how_it_was_found() -> None:
    """On its line, or in the comment above it."""
    for path, names in tuned().items():
        lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
        for name, line in names.items():
            first = line - 1
            while lines[first - 1].startswith("#"):
                first -= 1
            said = " ".join(part.partition("#")[2] for part in lines[first:line])
            assert SAID.search(said), f"{path}:{line}: {name}: measured, reasoned, or figure not kept?"
