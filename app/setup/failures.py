"""What can go wrong in a setup: exit codes, and the cause read from a tool's output."""

from __future__ import annotations

import re
from pathlib import Path

NO_PYTHON, NO_COMPILER, NO_NETWORK, NO_SPACE, BUILD_FAILED, WRONG_HASH, NOT_FIT = range(10, 17)
"""Documented exit codes; ``script/with-python`` also ends with 10."""
DECLINED = 17
SETTINGS, PORT_TAKEN = 3, 20
"""The same codes as the program's own."""
INTERRUPTED = 130

LAST_LINES = 15


class SetupError(Exception):
    """A step cannot be done. ``what`` and ``why`` have no full stop; ``fix`` is an instruction."""

    log: Path | None = None

    def __init__(self, exit_code: int, what: str, why: str, fix: str) -> None:
        super().__init__(what)
        self.exit_code, self.what, self.why, self.fix = exit_code, what, why, fix

    def report(self) -> str:
        """Several lines for standard error, with the end of the log if there is one."""
        text = f"Setup stopped: {self.what}.\n  Why: {self.why}.\n  Fix: {self.fix}"
        if self.log is None:
            return text
        lines = self.log.read_text(errors="replace").splitlines()[-LAST_LINES:]
        return "\n".join([text, f"  The log {self.log} ends with:", *(f"    {x}" for x in lines)])


def declined() -> SetupError:
    return SetupError(
        DECLINED,
        "you answered no",
        "you were asked before the download, and nothing was fetched",
        "Run this again later, or choose another profile: reachy-voice config profiles",
    )


def compiler_missing() -> SetupError:
    return SetupError(
        NO_COMPILER,
        "there is no C and C++ compiler",
        "llama-cpp-python is compiled for this computer's processor, but $CC and $CXX, "
        "gcc and g++, and clang and clang++ are all missing",
        "sudo apt-get install gcc g++    (Fedora: gcc-c++, macOS: xcode-select --install)",
    )


# The order matters: pip retries a lost connection, so its network warnings mean nothing if a later
# line names another cause.
_CAUSES: tuple[tuple[str, int, str, str], ...] = (
    (
        r"DO NOT MATCH THE HASHES|HashMismatch",
        WRONG_HASH,
        "a downloaded file does not match the lock file",
        "Run this again. If that fails, the index or a proxy serves other files: check pip's "
        "index-url (pip config list); do not use that file",
    ),
    (
        r"No space left on device|Errno 28\b|[Dd]isk quota exceeded|Errno 122\b",
        NO_SPACE,
        "the disk is full",
        "Free about 2 GB here and in the cache, then run this again: it resumes here",
    ),
    (
        r"No CMAKE_C(XX)?_COMPILER could be found|CMAKE_C(XX)?_COMPILER not set"
        r"|is not a full path to an existing compiler",
        NO_COMPILER,
        "CMake found no C++ compiler",
        "sudo apt-get install gcc g++",
    ),
    (
        r"Killed signal terminated program|virtual memory exhausted|cannot allocate memory"
        r"|std::bad_alloc",
        BUILD_FAILED,
        "memory ran out",
        "Close other programs, or compile one file at a time: "
        "export CMAKE_BUILD_PARALLEL_LEVEL=1, then run this again",
    ),
    (
        r"CMake Error|ninja: build stopped|\berror: command .* failed|internal compiler error",
        BUILD_FAILED,
        "the compiler or CMake reported an error",
        "See the log. g++ 11 or clang 14 or newer is needed; then run this again",
    ),
    (
        r"name resolution|Name or service not known|nodename nor servname|getaddrinfo failed"
        r"|Failed to resolve",
        NO_NETWORK,
        "the name of the package index cannot be resolved",
        "Connect this computer to the Internet, or set a reachable index (PIP_INDEX_URL)",
    ),
    (
        r"CERTIFICATE_VERIFY_FAILED|SSLError|SSLCertVerificationError",
        NO_NETWORK,
        "the certificate of the package index is not trusted",
        "Check the clock and, behind a company proxy, point PIP_CERT at its certificate",
    ),
    (
        r"NewConnectionError|Failed to establish a new connection|Network is unreachable"
        r"|No route to host|Connection refused|ProxyError|Connection reset|ConnectionResetError"
        r"|ReadTimeout|[Rr]ead timed out|ConnectTimeout|IncompleteRead|ProtocolError"
        r"|Connection aborted|HTTP error [45]\d\d|[45]\d\d (Client|Server) Error",
        NO_NETWORK,
        "the package index cannot be reached",
        "Check the connection and the proxy (HTTPS_PROXY), then run this again: it resumes here",
    ),
    (
        r"No matching distribution found|Could not find a version that satisfies",
        NO_NETWORK,
        "the package index does not have a pinned package for this Python and platform",
        "Use Python 3.11 to 3.13 on Linux with glibc 2.34 or newer; "
        "check pip's index-url (pip config list)",
    ),
)


def classify(what: str, log: str) -> SetupError:
    """The error for a failed step, from the output of its commands."""
    for pattern, exit_code, why, fix in _CAUSES:
        if re.search(pattern, log):
            return SetupError(exit_code, what, why, fix)
    return SetupError(
        BUILD_FAILED,
        what,
        "a command failed for an unknown reason",
        "See the log, then run this again: finished steps are kept",
    )
