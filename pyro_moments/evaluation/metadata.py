"""The attributes and methods of tensors that need no elements, and so no moment rule."""

from __future__ import annotations

import torch

METADATA = {
    getattr(torch.Tensor, name).__get__
    for name in "shape dtype device ndim layout requires_grad is_leaf grad_fn grad is_nested "
    "is_sparse is_quantized is_meta is_cuda is_cpu is_mps names _base".split()
    if hasattr(getattr(torch.Tensor, name, None), "__get__")
} | {
    getattr(torch.Tensor, name)
    for name in "size dim ndimension numel nelement __len__ is_floating_point is_complex "
    "stride is_contiguous element_size storage_offset __hash__ get_device".split()
}
METADATA |= {torch.is_floating_point, torch.is_complex, torch.numel}
