"""Networks can be copied, pickled and shared between threads at every stage, and compute the same."""

from __future__ import annotations

import copy
import io
import multiprocessing
import pickle
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import pcshrink as pcs
from pcshrink.surgery.gates import find_gates
from testing.checks import outputs, random_keep, stir_gates_, train_once
from testing.nets import CASES


class Attending(nn.Module):
    """Attention by torch's own class, alone and inside an encoder layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(6, 16)
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)
        self.encoder = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)
        self.head = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        x = x + self.attention(x, x, x)[0]
        scores: Tensor = self.head(self.encoder(x).mean(dim=1))
        return scores


def through_a_file(model: nn.Module) -> nn.Module:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    again: nn.Module = torch.load(file, weights_only=False)
    return again


WAYS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda model: pickle.loads(pickle.dumps(model)),
    "torch.save": through_a_file,
}
NETS: dict[str, tuple[Callable[[], nn.Module], Any]] = {
    "Residual": (CASES["Residual"].model, CASES["Residual"].inputs()),
    "Perceptron": (CASES["Perceptron"].model, CASES["Perceptron"].inputs()),
    "Attending": (Attending, torch.randn(3, 7, 6)),
}


def stage(net: str, kind: str) -> tuple[nn.Module, Any]:
    """A network that is gated, masked, cut with gates, or cut and folded."""
    build, example = NETS[net]
    torch.manual_seed(0)
    model = build()
    shrinker = pcs.attach_(model, example)
    stir_gates_(model)
    train_once(model, example)  # records saliences with their graph
    plan = shrinker.plan(random_keep(shrinker, seed=3))
    if kind == "masked":
        shrinker.mask_(plan)
    elif kind in ("keep", "fold"):
        model = pcs.compact(model, plan, example, gates=kind)  # type: ignore[arg-type]
    return model.eval(), example


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["gated", "masked", "keep", "fold"])
@pytest.mark.parametrize("net", NETS)
def test_a_copy_computes_the_same_and_lives_by_itself(net: str, kind: str, way: str) -> None:
    model, example = stage(net, kind)
    expected = outputs(model, example)
    again = WAYS[way](model).eval()
    for one, other in zip(expected, outputs(again, example), strict=True):
        assert torch.equal(one, other)
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            tensor.zero_()
    for one, other in zip(expected, outputs(again, example), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("net", NETS)
def test_a_pickled_network_shrinks_on(net: str) -> None:
    model, example = stage(net, "gated")
    again = WAYS["pickle"](model)
    shrinker = pcs.attach_(again, example)
    again.train()
    loss = outputs_with_gradient(again, example) + shrinker.penalty()
    loss.backward()
    shrinker.step()
    plan = shrinker.plan(random_keep(shrinker, seed=4))
    small = pcs.compact(again, plan, example)
    assert sum(p.numel() for p in small.parameters()) < sum(p.numel() for p in again.parameters())
    assert not find_gates(pcs.detach_(again))


def outputs_with_gradient(model: nn.Module, example: Any) -> Tensor:
    out: Tensor = model(example)
    return out.square().mean()


@pytest.mark.parametrize("kind", ["gated", "masked", "keep", "fold"])
def test_torch_export_takes_it_without_a_word(kind: str) -> None:
    """Warnings are errors in these tests; torch warns of tensors that a forward pass leaves on a module."""
    model, example = stage("Residual", kind)
    model.eval()
    exported = torch.export.export(model, (example,)).module()
    torch.testing.assert_close(exported(example), outputs(model, example)[0], rtol=1e-5, atol=1e-6)


def test_four_threads_share_one_network_with_gates() -> None:
    model, _ = stage("Residual", "keep")
    assert find_gates(model)
    shape = CASES["Residual"].shapes[0]
    images = [torch.randn(shape, generator=torch.Generator().manual_seed(n)) for n in range(20)]
    with torch.no_grad():
        expected = [model(x) for x in images]
    wrong: list[int] = []

    def work(seed: int) -> None:
        order = torch.randint(len(images), (500,), generator=torch.Generator().manual_seed(seed)).tolist()
        with torch.no_grad():
            wrong.extend(n for n in order if not torch.equal(model(images[n]), expected[n]))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def answer(pipe: Connection) -> None:
    """In a process of its own: send back what each network gives that arrives, until there are no more."""
    torch.set_num_threads(1)
    while (sent := pipe.recv()) is not None:
        model, example = sent
        pipe.send([tensor.tolist() for tensor in outputs(model, example)])


def test_a_spawned_process_computes_the_same() -> None:
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=answer, args=(there,))
    process.start()
    for net in NETS:
        for kind in ("gated", "masked", "keep", "fold"):
            model, example = stage(net, kind)
            here.send((model, example))
            assert here.recv() == [tensor.tolist() for tensor in outputs(model, example)], (net, kind)
    here.send(None)
    process.join()
    assert process.exitcode == 0
