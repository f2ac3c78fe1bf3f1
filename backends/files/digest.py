"""The SHA-256 of a package's members."""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib import import_module

# Bytes of a member up to which the interpreter's own SHA-256 is used, at 0.22 GB/s. Measured: hashlib takes 3.9 ms to
# import, for OpenSSL, which hashes 1.7 GB/s; six members of this size take 3.6 ms.
SMALL = 1 << 17


def sha256(data: bytes | memoryview) -> str:
    """The hash as hexadecimal text."""
    if len(data) <= SMALL and "hashlib" not in sys.modules:
        for name in ("_sha2", "_sha256"):  # Python 3.12 and later, 3.11
            with suppress(ImportError, AttributeError):
                return str(import_module(name).sha256(data).hexdigest())
    from hashlib import sha256 as by_openssl  # slow

    return by_openssl(data).hexdigest()
