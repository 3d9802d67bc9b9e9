"""Prove the cut on known architectures and write docs/coverage.md.

    python -m benchmarks.zoo [--only PATTERN]

Every architecture gets random weights and norms, gates, a random cut, and must give what the masked model gives: within
1e-5 of the largest output in float32, 1e-12 in float64. An exception that is not a ShrinkError is a failure.
With ``--only`` (a glob over the names) the table is printed and no file is written.
"""

from __future__ import annotations

import argparse
import fnmatch
import logging
import platform
import signal
import sys
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

import pcshrink as pcs
from testing.checks import LIMIT, outputs, random_keep, relative, same_top, stir_gates_
from testing.nets import settle_norms_

COVERAGE = Path(__file__).resolve().parent.parent / "docs" / "coverage.md"
PATIENCE_S = 300
SMALL = 13_000_000  # parameters up to which float64 is tried as well

# name@side of the input; `i` after it: the model is told so (img_size), `v`: a clip of 8 frames, `d`: a detector.
# Default @64.
TORCHVISION_CONV = """
    alexnet vgg11 vgg11_bn vgg16_bn resnet18 resnet34 resnet50 resnext50_32x4d wide_resnet50_2 squeezenet1_0
    squeezenet1_1 densenet121 densenet169 googlenet@96 inception_v3@96 shufflenet_v2_x0_5 shufflenet_v2_x1_0
    mobilenet_v2 mobilenet_v3_small mobilenet_v3_large mnasnet0_5 mnasnet1_0 efficientnet_b0 efficientnet_b1
    efficientnet_v2_s regnet_x_400mf regnet_x_800mf regnet_y_400mf regnet_y_800mf convnext_tiny fcn_resnet50
    deeplabv3_mobilenet_v3_large deeplabv3_resnet50 lraspp_mobilenet_v3_large r3d_18@32v mc3_18@32v
r2plus1d_18@32v
    fasterrcnn_mobilenet_v3_large_320_fpn@96d retinanet_resnet50_fpn@96d fcos_resnet50_fpn@96d
    ssdlite320_mobilenet_v3_large@96d"""
TORCHVISION_OTHER = """
    vit_b_16@64i swin_t swin_v2_t maxvit_t@224
"""
TIMM = """
    resnet26t resnet10t resnetv2_50 resnetv2_18 resnetblur18 res2net50_14w_8s res2next50 resnest14d regnetx_002
    regnety_002 regnetz_b16 nf_regnet_b0 efficientnet_lite0 tf_efficientnetv2_b0 efficientnet_es mobilenetv1_100
    mobilenetv2_050 mobilenetv3_small_050 mobilenetv4_conv_small mobilenetv4_hybrid_medium ghostnet_050
    ghostnetv2_100 repghostnet_050 rexnet_100 hrnet_w18_small dla46_c dla60_res2net cspresnet50 cspdarknet53
    cs3darknet_s darknet17 ese_vovnet19b_slim ese_vovnet19b_dw repvgg_a0 mobileone_s0 convnext_atto
    convnextv2_atto convmixer_768_32 inception_next_atto inception_v4@96 inception_resnet_v2@96 xception41
    xception41p nf_resnet26 eca_nfnet_l0 seresnet18 legacy_seresnet18 ecaresnet26t skresnet18 gcresnet33ts
    densenetblur121d dpn48b dpn68 selecsls42 tresnet_m gernet_s hgnetv2_b0 rdnet_tiny starnet_s1 tinynet_e
    lcnet_050 hardcorenas_a fbnetc_100 fbnetv3_b mnasnet_small spnasnet_100 semnasnet_050 mixnet_s
    vit_tiny_patch16_224@64i deit_tiny_patch16_224@64i deit3_small_patch16_224@64i beit_base_patch16_224@64i
    eva02_tiny_patch14_224@70i cait_xxs24_224@64i xcit_nano_12_p16_224@64i swin_tiny_patch4_window7_224@224
    swinv2_cr_tiny_224@224 mobilevit_xxs mobilevitv2_050 mixer_s32_224@64i gmlp_ti16_224@64i resmlp_12_224@64i
    poolformer_s12 poolformerv2_s12 caformer_s18 edgenext_xx_small levit_128s@224 levit_conv_128s@224 pvt_v2_b0
    twins_svt_small@64i coat_lite_tiny@64i coatnet_nano_rw_224@224 efficientformer_l1@224
    efficientformerv2_s0@224 fastvit_t8 efficientvit_b0 efficientvit_m0@224 repvit_m0_9 shvit_s1 swiftformer_xs
    tiny_vit_5m_224@224 pit_ti_224@224 visformer_tiny@224 crossvit_9_240@240 convit_tiny@64i
    tnt_s_patch16_224@64i nest_tiny@224 volo_d1_224@64i focalnet_tiny_srf davit_tiny mvitv2_tiny@224
    hiera_tiny_224@224 sequencer2d_s@224 botnet26t_256@256 halonet26t@256 lambda_resnet26t@128 bat_resnext26ts@256
    maxvit_nano_rw_256@256 gcvit_xxtiny@224 mambaout_femto nextvit_small vitamin_small_224@64i
"""


@dataclass
class Row:
    """One line of the table."""

    name: str
    source: str
    convolutional: bool
    side: int
    options: dict[str, Any] = field(default_factory=dict)
    kind: str = ""  # "v" takes clips, "d" is a detector
    params: int = 0
    groups: int = 0
    share: float = 0.0
    differences: dict[str, float] = field(default_factory=dict)
    note: str = ""
    outcome: str = "failed"
    seconds: float = 0.0

    def build(self) -> nn.Module:
        """The network with random weights and norms, in evaluation mode."""
        torch.manual_seed(0)
        if self.source == "timm":
            import timm

            model = timm.create_model(self.name, pretrained=False, **self.options)
        else:
            import torchvision

            known: dict[str, Any] = {"weights": None}
            if self.kind == "d" or self.name.startswith(("fcn_", "deeplabv3_", "lraspp_")):
                known |= {"weights_backbone": None}
            if self.name in ("googlenet", "inception_v3"):
                known |= {"init_weights": False, "aux_logits": False}
            model = torchvision.models.get_model(self.name, **known, **self.options)
        samples = torch.cat([self.samples(torch.float32, seed) for seed in (3, 4)])
        settle_norms_(model.backbone if self.kind == "d" else model, samples)
        return model.eval()

    def samples(self, dtype: torch.dtype, seed: int) -> torch.Tensor:
        """Two samples of noise."""
        shape = (2, 3, *([8] if self.kind == "v" else []), self.side, self.side)
        return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)

    def example(self, dtype: torch.dtype, seed: int) -> Any:
        """The same as the network takes them."""
        samples = self.samples(dtype, seed)
        return (list(samples),) if self.kind == "d" else samples


def rows(source: str, entries: str, convolutional: bool) -> list[Row]:
    """Read the lists above."""
    made = []
    for entry in entries.split():
        name, _, size = entry.partition("@")
        side = int(size.rstrip("ivd") or 64)
        options = {("image_size" if source == "torchvision" else "img_size"): side} if size.endswith("i") else {}
        if name.endswith("_fpn"):
            options = {"min_size": side, "max_size": side}
        made.append(Row(name, source, convolutional, side, options, size[-1:] if size.endswith(("v", "d")) else ""))
    return made


class Slow(Exception):  # noqa: N818 - not an error of the library's
    """An architecture took too long."""


def _too_long(*_: Any) -> None:
    raise Slow(f"no answer after {PATIENCE_S} s")


def prove(row: Row) -> None:
    """Fill in one row."""
    started = time.perf_counter()
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(PATIENCE_S)
    try:
        row.params = sum(p.numel() for p in row.build().parameters())
        _prove_in(row, torch.float32)
        if row.params <= SMALL and _runs_wide(row):
            _prove_in(row, torch.float64)
        row.outcome = "exact"
    except pcs.ShrinkError as error:
        # a refusal names its reason before anything was trained; afterwards it is too late
        row.outcome = "failed" if row.groups else "refused"
        row.note = f"{type(error).__name__}: {error}"
    except Exception as error:
        row.note = f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
        row.seconds = time.perf_counter() - started


def _runs_wide(row: Row) -> bool:
    """Whether the network itself runs in float64: some make float32 tensors of their own."""
    try:
        outputs(row.build().double(), row.example(torch.float64, 1))
    except RuntimeError:
        return False
    return True


def _prove_in(row: Row, dtype: torch.dtype) -> None:
    model, example, other = row.build().to(dtype), row.example(dtype, 1), row.example(dtype, 2)
    cost = pcs.profile(model, example)
    shrinker = pcs.attach_(model, example)
    row.groups, row.share = len(shrinker.groups), _share(shrinker, cost)
    row.note = _why_not(shrinker) if row.share < 0.5 else ""
    stir_gates_(model)
    whole = outputs(model, other)
    plan = shrinker.plan(random_keep(shrinker, seed=1))
    small = pcs.compact(model, plan, example)
    shrinker.mask_(plan)
    if row.kind == "d":  # boxes jump where scores are equal to rounding, so the same choices are imposed on both
        row.differences[str(dtype).removeprefix("torch.")] = pcs.verify(model, small, other)
        return
    expected, got = outputs(model, other), outputs(small, other)
    worst = relative(expected, got)
    row.differences[str(dtype).removeprefix("torch.")] = worst
    if not worst <= LIMIT[dtype] or not same_top(expected, got, LIMIT[dtype]):
        raise AssertionError(f"masked and compact differ by {worst:.2g}")
    if relative(whole, expected) < 10 * LIMIT[torch.float32]:
        raise AssertionError("the cut does not show in the output, which proves nothing")


def _share(shrinker: pcs.Shrinker, cost: Any) -> float:
    """The part of all madds in layers that read or write a group, and in attention whose heads can leave."""
    touched = {name for g in shrinker.groups for name in (*g.writers, *g.readers)}
    counted = 0
    for layer in cost.layers:
        inside = layer.kind == "matmul" and any(name.startswith(f"{layer.name}.") for name in touched)
        counted += layer.madds if layer.name in touched or inside else 0
    return counted / max(cost.madds, 1)


def _why_not(shrinker: pcs.Shrinker) -> str:
    """The reason most layers stay."""
    reasons = [r.split(" in '")[0] + r.partition("'")[2].partition("'")[2] for r in shrinker.refused.values()]
    reasons = [r for r in reasons if "network output" not in r]
    return max(set(reasons), key=reasons.count) if reasons else ""


def table(found: list[Row]) -> str:
    """The rows as Markdown."""
    lines = [
        "| architecture | from | input | params | groups | madds that can shrink | float32 | float64 | |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in found:
        side = f"{'8 x ' if row.kind == 'v' else ''}{row.side} x {row.side}"
        differences = [f"{row.differences[d]:.1e}" if d in row.differences else "" for d in ("float32", "float64")]
        note = row.note.replace("|", "/").replace("\n", " ")
        note = note if row.outcome == "exact" else f"**{row.outcome}** {note[:300]}"
        cells = [row.name, row.source, side, f"{row.params / 1e6:.1f} M", str(row.groups), f"{row.share:.0%}"]
        lines.append("| " + " | ".join([*cells, *differences, note[:400]]) + " |")
    return "\n".join(lines)


def summary(found: list[Row]) -> str:
    """The closing lines."""
    counts = {kind: sum(r.outcome == kind for r in found) for kind in ("exact", "refused", "failed")}
    conv = [r for r in found if r.convolutional]
    good = sum(r.share > 0.5 and r.outcome == "exact" for r in conv)
    text = f"{len(found)} architectures: " + ", ".join(f"{n} {kind}" for kind, n in counts.items()) + "."
    if conv:
        text += (
            f"\n{good} of {len(conv)} convolutional architectures of torchvision ({good / len(conv):.0%}) have more "
            "than half of their madds in shrinkable groups."
        )
    return text


HEADER = """# Coverage

Written by `make zoo` (`benchmarks/zoo.py`), on the CPU, with torch {torch}, torchvision {torchvision}, timm {timm},
Python {python}.

{summary}

Every architecture has random weights and norms. `attach_` finds and proves its groups, a random part of the channels of
every group is cut, and the compact model is compared with the masked one on inputs that neither has seen before.

- **groups**: sets of channels that can leave one by one.
- **madds that can shrink**: share of the multiply-adds (convention "layers") in layers that read or write a group, and
  in attention whose heads can leave.
- **float32, float64**: largest difference between masked and compact output, as a share of the largest output; the
  limits are 1e-5 and 1e-12. float64 is tried up to {small:.0f} M parameters, where the network itself runs in it.
- Last column: where less than half can shrink, the most frequent reason.

"""


def main() -> int:
    """Run them all; 1 if any failed."""
    parser = argparse.ArgumentParser(description="Prove the cut on known architectures.")
    parser.add_argument("--only", metavar="PATTERN", help="a glob over the names; nothing is written then")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    chosen = [
        *rows("torchvision", TORCHVISION_CONV, True),
        *rows("torchvision", TORCHVISION_OTHER, False),
        *rows("timm", TIMM, False),
    ]
    chosen = [r for r in chosen if options.only is None or fnmatch.fnmatch(r.name, options.only)]
    for number, row in enumerate(chosen, 1):
        prove(row)
        worst = max(row.differences.values(), default=0)
        print(
            f"{number}/{len(chosen)} {row.name}: {row.outcome}, {row.groups} groups, {row.share:.0%}, {worst:.1e}, "
            f"{row.seconds:.1f} s {row.note[:160]}",
            flush=True,
        )
    print(f"\n{summary(chosen)}")
    if options.only is None:
        import timm
        import torchvision

        head = HEADER.format(
            torch=torch.__version__, torchvision=torchvision.__version__, timm=timm.__version__,
            python=platform.python_version(), summary=summary(chosen), small=SMALL / 1e6,
        )  # fmt: skip
        COVERAGE.write_text(head + table(chosen) + "\n", encoding="utf-8")
    return 1 if any(r.outcome == "failed" for r in chosen) else 0


if __name__ == "__main__":
    sys.exit(main())
