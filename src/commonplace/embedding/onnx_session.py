"""Encoders that compute in this process with ONNX: opening them, and what they raise."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from commonplace.errors import EmbeddingUnavailable

REBUILD = (
    "Reinstall the package, or in a source tree run `python tools/build_model.py` "
    "(it needs hatchling, numpy, onnx and safetensors)."
)


@contextlib.contextmanager
def failures_named() -> Iterator[None]:
    """Raise `EmbeddingUnavailable` for whatever goes wrong inside."""
    try:
        yield
    except Exception as error:  # the libraries raise bare exceptions for unreadable files
        raise EmbeddingUnavailable(
            f"The built-in model could not be used: {error}", hint=REBUILD
        ) from error


def run(session: Any, inputs: dict[str, Any]) -> Any:
    """The vectors that a session computes; ValueError if a number is not finite."""
    import numpy as np

    vectors = session.run(["vectors"], inputs)[0]
    if not np.isfinite(vectors).all():
        raise ValueError("it computed infinite or undefined numbers")
    return vectors


def open_session(path: Path, threads: int) -> Any:
    """An inference session of a model file."""
    # onnxruntime sends telemetry and stores a machine id under HOME unless this variable is set
    # before the import; the call below is for programs that imported it earlier.
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime

    onnxruntime.disable_telemetry_events()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    # With one thread the caller's thread computes, so that callers run in parallel.
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # The graphs were optimised when they were built; more than constant folding only costs time.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    # Convert int8 matrices to float32 once, when loading (3 ms a run instead of 25).
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
