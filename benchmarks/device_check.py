"""Everything that can be learned on a machine with a GPU, in one bounded run and one JSON file.

    python benchmarks/device_check.py --build DIR --target cuda:h200      # here, with NVRTC: kernels for that machine
    python benchmarks/device_check.py --carried DIR --out FILE.json       # there: needs numpy, onnx and CuPy only
    python benchmarks/device_check.py --device emulated --seconds 60      # a dry run of all sections, without a GPU

torch and JAX are compared with where they are installed; NVIDIA's compute-sanitizer and ncu are used where they are.
Each section has a share of `--seconds`, and its results are on disk before the next one begins.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stitchtune.benchmarks.device.session import Item, Session
    from stitchtune.benchmarks.device.store import Section

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 480.0


@dataclass(frozen=True)
class Part:
    """A section: the share of all seconds that it may take, what it builds, and what it does."""

    name: str
    share: float
    items: Callable[[Session], list[Item]]
    run: Callable[[Session, Section], None]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Exit code 1 when a section failed or a kernel was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for all sections together (%(default)s)")
    parser.add_argument("--out", type=Path, default=Path("device_check.json"), help="the JSON file (%(default)s)")
    parser.add_argument("--device", choices=("cuda", "emulated"), default="cuda")
    parser.add_argument("--target", default="", help="profile that kernels are made for (that of the device)")
    parser.add_argument("--build", type=Path, metavar="DIR", help="only build kernels for another machine, into DIR")
    parser.add_argument("--carried", type=Path, metavar="DIR", help="kernels built elsewhere by --build")
    parser.add_argument("--sections", default="", help="only these, separated by commas")
    parser.add_argument("--ten", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--more", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    with contextlib.ExitStack() as stack:
        _find_package(stack)
        cache = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stitchtune-check-")))
        return _check(given, cache)


def _find_package(stack: contextlib.ExitStack) -> None:
    """Makes `stitchtune` and `tests` importable from the checkout, installed or not."""
    sys.path[:] = [p for p in sys.path if Path(p or ".").resolve() != Path(__file__).resolve().parent]
    sys.path.insert(0, str(ROOT))
    try:
        import stitchtune  # noqa: F401
    except ImportError:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="stitchtune-path-"))
        (Path(folder) / "stitchtune").symlink_to(ROOT)
        sys.path.insert(0, folder)


def _check(given: argparse.Namespace, cache: Path) -> int:
    from stitchtune.benchmarks.device import store, subjects
    from stitchtune.graphs.errors import StitchtuneError

    try:
        made = _session(given, cache)
    except StitchtuneError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    again = _again(given)
    parts = [p for p in _parts(again) if not given.sections or p.name in given.sections.split(",")]
    if given.ten:
        json.dump(subjects.run_ten(made), sys.stdout)
        return 0
    if given.build is not None:
        return _build(made, parts, given.build)
    head = {"target": made.target.name, "emulated": made.emulated, "begun": time.time(), "seconds": given.seconds}
    kept = store.Store(given.out, head)
    if given.more:
        kept.resume()
    total = sum(part.share for part in parts)
    begun = time.monotonic()
    spent = 0.0
    for place, part in enumerate(parts, 1):
        spent += part.share
        made.until = begun + given.seconds * spent / total
        section = store.Section(part.name)
        started = time.monotonic()
        try:
            part.run(made, section)
        except ImportError as error:
            section.state, section.why = "skipped", f"{error}: a checkout with its tests is needed"
        except (StitchtuneError, OSError, RuntimeError, MemoryError, ValueError) as error:
            section.state, section.why = "failed", " ".join(f"{type(error).__name__}: {error}".split())[:500]
        section.seconds = time.monotonic() - started
        kept.add(section)
        print(f"{part.name}: {section.state}, {section.seconds:.1f} s, {section.summary} {section.why}", flush=True)
        if section.state == "failed" and parts[place:] and made.lost:
            left = max(1.0, given.seconds - (time.monotonic() - begun))
            return _go_on([*again, "--out", str(given.out), "--seconds", str(left)], parts[place:])
    print(f"results: {given.out}")
    return 1 if any(section.state == "failed" or _wrong(section) for section in kept.sections) else 0


def _wrong(section: Section) -> bool:
    return any(row.get("ok") is False or row.get("state") == "wrong" for row in section.rows)


def _session(given: argparse.Namespace, cache: Path) -> Session:
    from stitchtune.benchmarks.device.session import Session
    from stitchtune.devices import absence, resolve_target, target_of
    from stitchtune.graphs.errors import InputError
    from stitchtune.kernels.cuda import driver

    if given.device == "emulated":
        from stitchtune.kernels.cuda.emulated_device import EmulatedDevice

        target = resolve_target(given.target or "cuda:h200")
        return Session(target, EmulatedDevice(target), cache, emulated=True)
    if given.build is not None:
        return Session(resolve_target(given.target or "cuda:h200"), None, cache)
    from stitchtune.kernels.cuda.opening import open_device

    found = driver.devices()
    if not found:
        raise InputError(f"{absence()}; --device emulated runs everything dry")
    target = resolve_target(given.target) if given.target else target_of(found[0])
    return Session(target, open_device(target), cache, carried=given.carried)


def _go_on(arguments: Sequence[str], parts: Sequence[Part]) -> int:
    """The other sections, in a process of their own: this one has lost the device."""
    names = ",".join(part.name for part in parts)
    command = [sys.executable, str(Path(__file__).resolve()), *arguments, "--sections", names, "--more"]
    return subprocess.run(command, check=False).returncode


def _again(given: argparse.Namespace) -> list[str]:
    found = ["--device", given.device]
    for name in ("target", "carried"):
        if getattr(given, name):
            found += [f"--{name}", str(getattr(given, name))]
    return found


def _parts(again: list[str]) -> list[Part]:
    from stitchtune.benchmarks.device import cases, micro, pairs, subjects, tools

    def none(session: Session) -> list[Item]:
        return []

    command = tools.again_command(Path(__file__).resolve(), again)
    return [
        Part("facts", 0.01, none, tools.facts),
        Part("cases", 0.17, cases.items, cases.run),
        Part("pairs", 0.17, pairs.items, pairs.run),
        Part("occupancy", 0.01, subjects.suite_items, subjects.occupancy),
        Part("barrier", 0.04, micro.barrier_items, micro.barriers),
        Part("bandwidth", 0.06, micro.copy_items, micro.bandwidth),
        Part("suite", 0.30, subjects.suite_items, subjects.suite),
        Part("predicted", 0.15, subjects.predicted_items, subjects.predicted),
        Part("sanitizer", 0.07, tools.ten_items, lambda s, section: tools.sanitizer(s, section, command)),
        Part("sectors", 0.03, tools.ten_items, lambda s, section: tools.sectors(s, section, command)),
    ]


def _build(session: Session, parts: Sequence[Part], folder: Path) -> int:
    """Kernels of every section for another machine, and the index of them."""
    from stitchtune.benchmarks.device.session import INDEX, carry

    entries: dict[str, Any] = {}
    for part in parts:
        items = part.items(session)
        found = carry(session, items, folder, lambda line: print(f"  {line}", file=sys.stderr))
        entries |= found
        print(f"{part.name}: {len(found)} of {len(items)} plans built", flush=True)
    document = {"target": session.target.name, "arch": session.target.arch, "kernels": entries}
    (folder / INDEX).write_text(json.dumps(document))
    size = sum(p.stat().st_size for p in folder.iterdir()) / 1e6
    print(f"{len(entries)} plans for {session.target.name}, {size:.1f} MB: {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
