"""The grid barrier's own text: it lets nobody through early, launch after launch, whatever its word holds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import stitchtune.kernels as kernels
from stitchtune.kernels.compile import BuildFailure, compile_units, find_compiler
from stitchtune.kernels.cuda.emulator.entries import unit
from stitchtune.kernels.cuda.emulator.library import kernel_compiler
from stitchtune.kernels.cuda.emulator.machine import Machine, Memory, Settings

from tests.kernels.cuda.handwritten import kernel, launches, run

RIGHT = (Path(kernels.__file__).parent / "runtime" / "grid_barrier.h").read_text()

# Every phase reads what all blocks wrote in the one before.
PHASES = 5
CHAIN = kernel(
    "  if (thread == 0) st_store(g0, st_block(), 1.0f);\n"
    + "".join(
        f"""  st_sync_grid(barrier);
  if (thread == 33) {{
    float sum = 0.0f;
    for (int b = 0; b < st_grid(); ++b) sum += st_load_cg(g{i}, b);
    st_store(g{i + 1}, st_block(), sum / st_grid() * 2.0f);
  }}
"""
        for i in range(PHASES)
    )
    + f"  st_sync_block();\n  if (thread == 0) st_store(y0, st_block(), st_load_cg(g{PHASES}, st_block()));",
    "float* y0, " + ", ".join(f"float* g{i}" for i in range(PHASES + 1)) + ", unsigned* barrier",
    64,
)


def chain(cache: Path, blocks: int, barrier: str = RIGHT, repeat: int = 1, seed: int = 0) -> tuple[list[str], bool]:
    """Kinds of findings, and whether the result is right."""
    ran = run(
        cache,
        CHAIN,
        [],
        [np.empty(blocks, np.float32)],
        blocks=blocks,
        scratch_bytes=[4 * blocks] * (PHASES + 1),
        barrier=barrier,
        repeat=repeat,
        seed=seed,
        steps=2_000_000,
    )
    return ran.kinds, bool((ran.outputs[0] == 2.0**PHASES).all())


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("blocks", [1, 2, 3, 33, 128])
def test_it_holds_for_any_number_of_blocks(cache: Path, blocks: int, seed: int) -> None:
    assert chain(cache, blocks, seed=seed) == ([], True)


def test_launch_after_launch_on_one_word(cache: Path) -> None:
    assert chain(cache, 7, repeat=9) == ([], True)


@pytest.mark.parametrize("start", [0, 0x80000000, 1, 0x7FFFFFFF, 0xFFFFFFFF, 0x7FFFFFF9, 12345])
@pytest.mark.parametrize("blocks", [1, 6])
def test_the_word_comes_back_to_zero_or_its_top_bit(cache: Path, start: int, blocks: int) -> None:
    """From either the barrier holds, and leaves the other. What else a word may hold (a launch that was broken off)
    lets block 0 through early, unless it is alone: the word must be zeroed then."""
    compiler = find_compiler()
    assert compiler is not None
    (made,) = compile_units([unit(CHAIN, ["k"])], kernel_compiler(compiler), cache)
    assert not isinstance(made, BuildFailure)
    buffers = [np.empty(blocks, np.float32) for _ in range(PHASES + 2)]
    word = np.array([start], np.uint32)
    (launch,) = launches(CHAIN, 0, 1, blocks)
    with Machine([Memory(b.ctypes.data, b.nbytes, 4, False) for b in buffers], cache) as machine:
        found = machine.launch(made.library, launch, (), word.ctypes.data, Settings(steps=2_000_000), CHAIN).findings
    if blocks == 1 or start % 2**31 == 0:
        assert not found
        assert (buffers[0] == 2.0**PHASES).all()
        assert int(word[0]) == (start + PHASES * 2**31) % 2**32
    else:
        assert found


WRONG = {
    "a larger step of block 0": ("0x80000000u - (unsigned)(st_grid() - 1)", "0x80000000u - (unsigned)st_grid()"),
    "a smaller step of block 0": ("(unsigned)(st_grid() - 1)", "(unsigned)(st_grid() - 2)"),
    "a wrong bit": ("0x80000000u - ", "0x40000000u - "),
    "a wrong bit in the test": ("^ before) & 0x80000000u", "^ before) & 0x40000000u"),
    "any change lets through": ("& 0x80000000u) == 0", "& 0xffffffffu) == 0"),
    "nobody waits": ("while (((st_load_acquire(word) ^ before) & 0x80000000u) == 0) st_pause();", ""),
    "another block is first": ("st_block() == 0", "st_block() == 99"),
    "every block is first": ("st_block() == 0", "true"),
    "every thread adds": ("if (st_thread() == 0)", "if (true)"),
    "two threads add": ("st_thread() == 0", "st_thread() < 2"),
    "nobody adds": ("st_thread() == 0", "st_thread() == 999"),
    "nothing before": ("{\n  st_sync_block();", "{"),
    "nothing behind": ("  }\n  st_sync_block();", "  }"),
    "a warp's synchronisation before": ("{\n  st_sync_block();", "{\n  st_sync_warp();"),
    "steps of two": (": 1u", ": 2u"),
}


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("seed", [0, 5])
def test_a_wrong_barrier_is_caught(cache: Path, what: str, seed: int) -> None:
    old, new = WRONG[what]
    assert RIGHT.count(old) == 1
    kinds, right = chain(cache, 6, RIGHT.replace(old, new), seed=seed)
    assert kinds or not right
