"""What is installed for which import: a missing library is an error that names what to install."""

from __future__ import annotations

from lstm_ir.ir.errors import MissingLibraryError

INSTALLED = {  # top of the imported name: what pip calls it
    "iree.compiler": "iree-base-compiler",
    "iree.runtime": "iree-base-runtime",
    "iree": "iree-base-runtime",
    "ml_dtypes": "ml-dtypes",
    "networkx": "networkx",
    "lark": "lark",
    "click": "click",
    "rich": "rich",
    "onnx": "onnx",
    "onnx_ir": "onnx-ir",
    "onnxruntime": "onnxruntime",
    "ray": "ray",
    "torch": "torch",
}
_EXTRAS = {"onnx": ("onnx", "onnx_ir"), "ray": ("ray",)}  # extra: what it installs
_PURPOSE = {
    "iree.compiler": "compiles", "ml_dtypes": "gives NumPy bfloat16", "lark": "reads the text of graphs",
    "click": "the command line is made with", "rich": "draws on terminals", "networkx": "orders graphs",
}  # fmt: skip


def missing(e: ModuleNotFoundError) -> MissingLibraryError | None:
    """The project's error for a library of the table that is not here; None for any other module."""
    name = e.name or ""
    known = next((n for n in INSTALLED if name == n or name.startswith(n + ".")), None)
    if known is None or isinstance(e, MissingLibraryError):
        return None
    extra = next((f"'lstm-ir[{e}]'" for e, names in _EXTRAS.items() if known in names), "")
    purpose = f", which {_PURPOSE[known]}," if known in _PURPOSE else ""
    whole = extra if extra else "lstm-ir, without --no-deps, for all that it needs"
    text = f"{INSTALLED[known]}{purpose} is not installed: pip install {INSTALLED[known]} (or {whole})"
    return MissingLibraryError(text, name=known)
