"""What a target is, as plain data that passes may read: no compiler, no driver."""

from __future__ import annotations

from typing import NamedTuple

# What a module calls its one device: IREE's own name, so that its tools compile our text with flags of their own.
DEVICE = "__device_0"


class TargetInfo(NamedTuple):
    """A resolved target: what the hardware is, not what a caller chose for a module."""

    name: str  # the word the user wrote, resolved: "cpu:znver5", "vulkan", "cuda:sm_89"
    kind: str  # cpu, vulkan, cuda, hip or metal
    detail: str = ""  # processor, architecture level or GPU name; "" where there is none
    triple: str = ""  # LLVM's, on the CPU
    cpu: str = ""  # LLVM's processor name, never "host"
    features: tuple[str, ...] = ()  # CPU features a module may use, sorted: ("avx2", "fma", …)
    vector_bits: int = 128
    has_f64: bool = True
    has_f16: bool = True  # modules can load and store it
    has_bf16: bool = True
    l1_bytes: int = 32 << 10
    l2_bytes: int = 512 << 10
    kernels: bool = False  # recurrences usually become kernels of this project
    assertions_cheap: bool = True  # reading one scalar on the host does not stall a queue
    bindings: int | None = None  # tensors that its driver lets a dispatch have; None: more than IREE's dispatches have

    @property
    def has_vpdpbusd(self) -> bool:
        """Whether one instruction of x86-64 adds up the products of four bytes in each lane of its vectors."""
        if not self.triple.startswith("x86_64"):
            return False
        wide, narrow = {"avx512vnni"} <= set(self.features), {"avx512vnni", "avx512vl"} <= set(self.features)
        return wide if self.vector_bits == 512 else self.vector_bits == 256 and (narrow or "avxvnni" in self.features)

    def __str__(self) -> str:
        return self.name
