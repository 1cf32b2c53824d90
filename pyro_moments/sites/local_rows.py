"""Warn of plates that hold the rows of one process out of several."""

from __future__ import annotations

import torch
from pyro.poutine import Trace

from moment_calculus import warn_user


def warn_of_local_rows(model_trace: Trace) -> None:
    """Warn if several processes train, and an observed site counts the rows of this one alone."""
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        return
    count = distributed.get_world_size()
    for name, site in model_trace.nodes.items():
        if site["type"] != "sample" or not site["is_observed"] or count == 1:
            continue
        plates = [frame for frame in site["cond_indep_stack"] if frame.vectorized]
        if plates and all(frame.full_size in (None, frame.size) for frame in plates):
            warn_user(
                f"torch.distributed has {count} processes, and site '{name}' counts "
                f"{plates[-1].size} rows in plate '{plates[-1].name}': if each process has rows "
                "of its own, say how many all have, by pyro.plate(name, total, subsample=rows), "
                "or the divergence counts once for each process",
                UserWarning,
            )
