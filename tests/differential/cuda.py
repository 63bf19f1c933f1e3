"""CUDA under watch: the emulator, on a device so small that small subgraphs meet its limits."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from stitchtune.graphs.subgraph import Subgraph
from stitchtune.kernels.cuda.built import BuiltCuda
from stitchtune.kernels.cuda.emulator import emulate
from stitchtune.search_space.coupling import all_pairs
from stitchtune.search_space.devices import device_target
from stitchtune.search_space.plan import Plan

from tests.differential import drawing
from tests.differential.cuda_marks import EVERY_CUDA_MARK, cuda_marks
from tests.differential.cuda_mutations import CUDA_MUTATIONS, handed_back, lanes, loop_order, scalars, widths
from tests.differential.machine import Arrays, Pair, Setting, Wrong
from tests.differential.marks import Mark
from tests.differential.mutations import Mutation, accumulators, alias, apart, buffers, coupled, merge_kernels, unroll

LONG_ROWS = 1 << 16
"""Points from which a subgraph is there for its split rows: its plans keep the shape that the search space gives."""

LIGHT: tuple[Mutation, ...] = (lanes, widths, scalars, loop_order, accumulators, unroll, buffers)


class EmulatedCuda:
    """Few resident blocks and little shared memory, so that small subgraphs meet their limits."""

    name = "cuda"
    target = replace(
        device_target("cuda:h200"),
        name="cuda:small",
        processors=32,
        block_bytes=24 * 1024,
        resident_threads=1024,
        resident_blocks=2,
        shared_bytes=56 * 1024,
    )
    unit = 8
    kinds = "rsrgrjrj"
    focus = (5, 4, 6)
    wanted = EVERY_CUDA_MARK

    def __init__(self, cache: Path) -> None:
        self.cache = cache

    def setting(self, batch: int) -> Setting:
        return Setting(
            "fast" if batch % 5 == 4 else "strict", aligned=batch % 3 != 1, wide=batch % 7 == 2, once=batch % 2 == 1
        )

    def draw(self, sub: Subgraph, turn: int) -> tuple[Plan, tuple[str, ...]]:
        """Every other plan has two phases or more where any legal plan of the subgraph is found that has."""
        rng = random.Random(turn)
        if max((sub.domain_size(v) for v in sub.computed), default=0) >= LONG_ROWS:
            return self._changed(sub, "heuristic" if turn % 2 else "near", rng.sample(LIGHT, 1), rng)
        if any(all_pairs(sub)) and turn % 8 == 1:
            return self._changed(sub, "unfused", [coupled, *rng.sample(CUDA_MUTATIONS, 3), merge_kernels], rng)
        if any(all_pairs(sub)) and turn % 8 == 5:
            kind = rng.choice(("heuristic", "near"))
            return self._changed(sub, kind, [handed_back, *rng.sample(CUDA_MUTATIONS, 2)], rng)
        if any(sub.values[v].op == "piecewise" for v in sub.computed) and turn % 4 == 3:
            return self._changed(sub, "unfused", [alias, *rng.sample(CUDA_MUTATIONS, 2), merge_kernels], rng)
        plan, path = drawing.draw(sub, turn, self.target, CUDA_MUTATIONS)
        if turn % 2 or plan.barriers:
            return plan, path
        for start, names in ((plan, path), (drawing.base(sub, "unfused", rng, self.target), ("unfused",))):
            for change in (merge_kernels, apart):
                joined = drawing.legal(sub, start, change, rng, self.target)
                if joined is not None and joined.barriers:
                    return joined, (*names, change.__name__)
        return plan, path

    def _changed(
        self, sub: Subgraph, kind: str, changes: Sequence[Mutation], rng: random.Random
    ) -> tuple[Plan, tuple[str, ...]]:
        """A plan of the search space, changed."""
        plan, path = drawing.base(sub, kind, rng, self.target), [kind]
        for mutation in changes:
            changed = drawing.legal(sub, plan, mutation, rng, self.target)
            if changed is not None:
                plan = changed
                path.append(mutation.__name__)
        return plan, tuple(path)

    def build(self, pairs: Sequence[Pair], setting: Setting, unit: int) -> list[Any]:
        items = [(p.subject.sub, p.plan) for p in pairs]
        return list(
            emulate.build_emulated(
                items,
                self.target,
                precision=setting.precision,
                cache=self.cache,
                aligned=setting.aligned,
                jobs=1,
                per_unit=max(1, unit),
                once=setting.once,
                index_bits=64 if setting.wide else None,
            )
        )

    def run(self, built: BuiltCuda, pair: Pair, setting: Setting) -> Arrays:
        """With threads in order, and in another order, on one block where the kernels do not need more."""
        grid = None if setting.once or any(k.resident for k in built.kernels) else 1
        found = [self._once(built, pair, setting, *how) for how in ((0xFF, 0, None), (0x5A, 7, grid))]
        for i, (one, other) in enumerate(zip(*found, strict=True)):
            if one.tobytes() != other.tobytes():
                at = np.flatnonzero(one.reshape(-1).view(np.uint8) != other.reshape(-1).view(np.uint8))
                raise Wrong(f"output {i} has other bits the second time: element {int(at[0]) // one.itemsize}")
        return found[0]

    def _once(self, built: BuiltCuda, pair: Pair, setting: Setting, poison: int, seed: int, grid: int | None) -> Arrays:
        sub, inputs = pair.subject.sub, pair.subject.inputs
        outputs: Arrays = []
        for v in sub.outputs:
            array = np.empty(sub.shape(v), sub.values[v].dtype.numpy)
            array.reshape(-1).view(np.uint8)[:] = poison
            outputs.append(array)
        before = [a.tobytes() for a in inputs]
        shift = 0 if setting.aligned else 1
        ran = emulate.run(built, inputs, outputs, offset_elements=shift, seed=seed, grid=grid)
        if ran.findings:
            raise Wrong("; ".join(f"{f.kind} in {f.kernel}: {f.where}" for f in ran.findings[:3]))
        if before != [a.tobytes() for a in inputs]:
            raise Wrong("an input was changed")
        return outputs

    def marks(self, pair: Pair, built: BuiltCuda, setting: Setting) -> set[Mark]:
        found = cuda_marks(pair.subject.sub, pair.plan, built.kernels)
        return found if setting.aligned else found | {("base", "misaligned")}
