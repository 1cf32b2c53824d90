"""Programs in the spelling of torch, see ``programs.py``: one row for each function there."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch.nn.functional import linear

from tests.cases.programs import REFUSED, A, Program, layered, x

mask = torch.tensor([True, False])
second = torch.tensor([[1]])

# One spelling of every torch function beside those above.
SPELLINGS = [
    Program("einsum", "W", lambda x, W: torch.einsum("bi,oi->bo", x, W)),
    Program("einsum_of_columns", "W", lambda x, W: torch.einsum("oi,bi->ob", W, x).T),
    Program("einsum_of_heads", "W", lambda x, W: torch.einsum("bi,hoi->bho", x, W[None])[:, 0]),
    Program("einsum_list", "b", lambda x, b: torch.einsum("bi,i", [x, b])),
    Program("einsum_diagonal", "W", lambda W: torch.einsum("ii->i", W), REFUSED, REFUSED, False),
    Program(
        "einsum_of_three", "Wb", lambda x, W, b: torch.einsum("bi,oi,o->b", x, W, b), *2 * [REFUSED]
    ),
    Program("tensordot", "W", lambda x, W: torch.tensordot(x, W, dims=([1], [1]))),
    Program("bmm", "W", lambda x, W: torch.bmm(x[:, None], W.mT.expand(len(x), 2, 2))[:, 0]),
    Program("addmm", "bW", lambda x, b, W: torch.addmm(b.expand(2, 2), x, W.T, alpha=2.0)),
    Program("addmv", "b", lambda x, b: torch.addmv(A[0, :1], x, b, beta=0.5)),
    Program("outer", "bu", lambda b, u: torch.outer(b, u), data=False),
    Program("random_rows", "XW", lambda X, W: X @ (W @ X.T), REFUSED, REFUSED, data=False),
    Program("attention", "X", lambda X: (X @ X.T) @ X, REFUSED, REFUSED, data=False),
    Program("embedding", "W", lambda W: F.embedding(torch.tensor([1, 0]), W), data=False),
    Program(
        "embedding_bag",
        "W",
        lambda W: F.embedding_bag(torch.tensor([[1, 0, 1], [1, 1, 1]]), W, mode="sum"),
        data=False,
    ),
    Program(
        "embedding_mean",
        "W",
        lambda W: F.embedding_bag(torch.tensor([1, 0, 1]), W, torch.tensor([0, 1])),
        data=False,
    ),
    Program("leaf_sum", "W", lambda W: W.sum(), data=False),
    Program("leaf_mean", "W", lambda W: W.mean(dim=(0, 1), keepdim=True), data=False),
    Program("leaf_columns", "W", lambda W: W.sum(0), data=False),
    Program("leaf_products", "W", lambda W: W.prod(0), data=False),
    Program("leaf_product", "u", lambda u: u.prod(), data=False),
    Program("leaf_sums", "W", lambda W: W.cumsum(0), "approximate", "approximate", data=False),
    Program("leaf_trace", "W", lambda W: W.trace(), data=False),
    Program("index_put", "W", lambda W: torch.index_put(A, (mask,), W[:1]), data=False),
    Program("masked_scatter", "b", lambda b: A.masked_scatter(mask, b), data=False),
    Program("sum_of_squares", "W", lambda W: (W * W).sum(), data=False),
    layered("sum", lambda h: h.sum(-1)),
    Program("sum_of_batch", "Wb", lambda W, b: linear(A, W, b).sum(0), data=False),
    Program("sum_of_all", "Wb", lambda W, b: torch.sum(linear(A, W, b)), data=False),
    Program("mean_of_batch", "Wb", lambda W, b: linear(A, W, b).mean(0), data=False),
    layered("mean", lambda h: h - torch.mean(h, dim=-1, keepdim=True)),
    layered("sum_of_columns", lambda h: h.T.sum(0)),
    layered("cumsum", lambda h: h.cumsum(dim=1)),
    layered("cumsum_of_batch", lambda h: h.cumsum(0), REFUSED, REFUSED),
    layered("diff", lambda h: h.diff() * 2),
    Program("diff_of_batch", "W", lambda W: linear(A, W).diff(dim=0), data=False),
    layered("prod", lambda h: h.prod(-1, keepdim=True)),
    layered("by_hand", lambda h: (h - h.mean(-1, True)) / h.std(-1, keepdim=True), *2 * [REFUSED]),
    layered("permute", lambda h: h[None].permute(2, 0, 1).permute((1, 2, 0))[0]),
    layered("movedim", lambda h: linear(h[None].movedim(0, 1).movedim(1, 0)[0], A)),
    layered("transpose", lambda h: h[None].transpose(0, 1).transpose(1, 0)[0] * x[0]),
    layered("leading_features", lambda h: (h.T[1:] * 2 + h.T[:1]).T),
    layered("row_of_transposed", lambda h: h.T[0]),
    layered("index_select", lambda h: h.index_select(-1, torch.tensor([1, 0, 1]))),
    layered("index_of_transposed", lambda h: h.T[[1, 0]].T),
    layered("gather", lambda h: h.gather(-1, second.expand(len(h), 1))),
    layered("take_along_dim", lambda h: h.take_along_dim(second, dim=1)),
    layered("index_copy", lambda h: h.index_copy(1, second[0], x[0][:1].expand(len(h), 1))),
    layered("narrow", lambda h: h.narrow(-1, 1, 1) - h.select(-1, 0)[:, None]),
    layered("stack", lambda h: linear(torch.stack([h[:, 1], h[:, 0]], -1), A)),
    layered("stack_of_maps", lambda h: torch.stack((h, h @ A))[1]),
    layered("hstack", lambda h: torch.hstack([h, 0 * h, h @ A])),
    layered("unbind", lambda h: torch.sub(*(h @ A).unbind(-1))),
    layered("clone", lambda h: h.clone() - h),
    layered("chunk", lambda h: torch.sub(*h.chunk(2, -1))),
    layered("split", lambda h: torch.sub(*h.split([1, 1], dim=1))),
    layered("tensor_split", lambda h: torch.mul(*h.tensor_split(2, dim=1))),
    layered("flip", lambda h: h.flip(-1) + h),
    layered("roll", lambda h: h.roll(1, -1) - h),
    layered("repeat", lambda h: h.repeat(1, 2)),
    layered("repeat_interleave", lambda h: h.repeat_interleave(2, dim=-1)),
    layered("tile", lambda h: h[:, :1].tile(2)),
    layered("unflatten", lambda h: h.unflatten(1, (2, 1)).flatten(1) * x[0]),
    layered("where", lambda h: torch.where(mask, h, x[0])),
    layered("where_of_two", lambda h: torch.where(mask, h, h @ A)),
    layered("where_method", lambda h: h.where(mask, 0.5)),
    layered("masked_fill", lambda h: h.masked_fill(mask, 3.0)),
    layered("mask", lambda h: mask * h + h * mask),
    layered("addcmul", lambda h: torch.addcmul(h, h, x[0], value=2)),
    layered("addcdiv", lambda h: torch.addcdiv(x[0], h, 1 + x[1] ** 2)),
    layered("lerp", lambda h: torch.lerp(h, h @ A, 0.3)),
    layered("float64", lambda h: h.to(torch.float64).double().type_as(x) + h),
    layered("dropout", lambda h: F.dropout(h, 0.5, training=False)),
    layered("batch_norm", lambda h: F.batch_norm(h, x[0], x[1] ** 2, x[1], x[0])),
    layered("trained_dropout", lambda h: F.alpha_dropout(h, 0.5, True), REFUSED, REFUSED),
    layered(
        "trained_batch_norm", lambda h: F.batch_norm(h, None, None, training=True), REFUSED, REFUSED
    ),
    layered("detach", lambda h: h.detach(), REFUSED, REFUSED),
    layered("softmax_of_batch", lambda h: h.softmax(0), REFUSED, REFUSED),
]
