"""Write docs/coverage.md."""

from __future__ import annotations

from pathlib import Path

from benchmarks.zoo.peer import PATIENCE_S
from benchmarks.zoo.prove import SMALL
from benchmarks.zoo.row import Kept, Row

COVERAGE = Path(__file__).resolve().parents[2] / "docs" / "coverage.md"
OUTCOMES = ("exact", "refused", "failed")
PEER = ("works", "wrong", "crashes", "removes nothing", "no answer")

HEADER = """# Coverage

Written by `make zoo` (`benchmarks/zoo/`), on the CPU, with {versions}.

{summary}

Every architecture has random weights and norms. `attach_` finds and proves its groups, a random part of the channels of
every group is cut, and the compact model is compared with the masked one on inputs that neither has seen before.
Those of transformers, MONAI and diffusers have few and narrow layers; what can shrink is decided by their code.

- **groups**: sets of channels that can leave one by one.
- **madds, params**: share of the multiply-adds (convention "layers") and of the parameters in layers that read or write
  a group; for madds also attention whose heads can leave.
- **float32, float64**: largest difference between masked and compact output, as a share of the largest output; the
  limits are 1e-5 and 1e-12. float64 is tried up to {small:.0f} M parameters, where the network itself runs in it. Where
  float32 alone is the reason of a larger difference, float64 decides.
- **Torch-Pruning**: half of the channels by magnitude, with its defaults, the layers that make the outputs left out.
  *works*: what it leaves gives the output of the network in which the removed channels are set to zero where they are
  written. *wrong*: it runs, but gives another output (the largest difference in brackets); among these are networks
  whose norms run over the channels that it removes. *crashes*: building the graph, the cut, or the first run after it
  ends in an error. *no answer*: more than {patience} s of the processor's time.
- Last column: where less than half of the madds can shrink, the most frequent reason.

"""


def write(kept: Kept) -> None:
    """The whole page."""
    rows = list(kept.rows.values())
    families = list(dict.fromkeys(row.family for row in rows))
    parts = [
        HEADER.format(
            versions=", ".join(f"{name} {number}" for name, number in kept.versions.items()),
            summary=summary(rows), small=SMALL / 1e6,
            patience=PATIENCE_S,
        ),
        "## By family\n", _families(rows, families),
    ]  # fmt: skip
    for family in families:
        parts += [f"\n## {family}\n", _table([row for row in rows if row.family == family])]
    COVERAGE.write_text("\n".join(parts) + "\n", encoding="utf-8")


def summary(rows: list[Row]) -> str:
    """The closing lines."""
    counts = {kind: sum(r.outcome == kind for r in rows) for kind in OUTCOMES}
    text = f"{len(rows)} architectures: " + ", ".join(f"{n} {kind}" for kind, n in counts.items()) + "."
    tried = [row for row in rows if row.peer]
    if tried:
        found = {kind: sum(r.peer.startswith(kind) for r in tried) for kind in PEER}
        text += f"\nTorch-Pruning on {len(tried)} of them: " + ", ".join(f"{k} {n}" for k, n in found.items()) + "."
    return text


def _families(rows: list[Row], families: list[str]) -> str:
    lines = [
        "| family | architectures | exact | refused | failed | madds | params | Torch-Pruning: tried | works | wrong "
        "| crashes | removes nothing | no answer |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for family in families:
        here = [row for row in rows if row.family == family]
        exact = [row for row in here if row.outcome == "exact"]
        ours = [str(sum(row.outcome == kind for row in here)) for kind in OUTCOMES]
        shares = [
            f"{sum(getattr(row, field) for row in exact) / max(len(exact), 1):.0%}"
            for field in ("madds_share", "params_share")
        ]
        tried = sum(bool(row.peer) for row in here)
        theirs = [str(tried), *(str(sum(row.peer.startswith(kind) for row in here)) if tried else "" for kind in PEER)]
        lines.append("| " + " | ".join([family, str(len(here)), *ours, *shares, *theirs]) + " |")
    return "\n".join(lines)


def _table(rows: list[Row]) -> str:
    lines = [
        "| architecture | input | params | groups | madds | params | float32 | float64 | Torch-Pruning | |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        differences = [f"{row.differences[d]:.1e}" if d in row.differences else "" for d in ("float32", "float64")]
        note = row.note.replace("|", "/").replace("\n", " ")
        note = note if row.outcome == "exact" else f"**{row.outcome}** {note[:300]}"
        size = f"{row.params / 1e6:.1f} M" if row.params >= 50_000 else f"{row.params / 1e3:.0f} k"
        cells = [row.name, row.shown, size, str(row.groups), f"{row.madds_share:.0%}", f"{row.params_share:.0%}"]
        lines.append("| " + " | ".join([*cells, *differences, row.peer, note[:400]]) + " |")
    return "\n".join(lines)
