"""The tuning loop: from a partitioned graph to the best plans of its subgraphs, in the database.

Distinct subgraphs are tuned once. Each gets its two baselines first, then rounds as the budget's bandit says, and at
the end its best plans are measured again side by side. A subgraph whose search an earlier run finished is not touched.
Ctrl-C keeps everything found so far.
"""

from __future__ import annotations

import os
import platform
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..graphs.partition import Partition
from ..graphs.subgraph import Subgraph
from ..graphs.tolerance import expect
from ..results.database import Database
from ..results.records import Fact, Measurement, PlanKey, Run
from ..search_space.stitch import heuristic, unfused
from ..search_space.target import DeviceModel, Target
from .budget import Rules, choose, stop_reason
from .cost import limit
from .device import prepare_device
from .effort import EFFORTS, Options
from .events import Doing, Event, Part, Standing, TuneResult
from .groups import Group, distinct, graph_record
from .history import finished, lessons
from .measure import Measurer, write_subject
from .microbench import measure_device
from .predicting import PredictedTask, why_uncompiled
from .profiles import profile_model
from .protocol import Subject
from .recording import record_inputs, recorded, recording_target
from .reference import Reference
from .residual import Observation, Quality, fit, quality
from .task import PREDICTED, Task
from .workshop import Workshop

CONFIRM_SECONDS = 0.5
"""Part of the budget kept for the confirmation of each subgraph, at least."""


def tune_graph(
    partition: Partition,
    feeds: Mapping[str, NDArray[Any]],
    db: Database,
    target: Target,
    key_of: Callable[[Subgraph], PlanKey],
    options: Options,
    progress: Callable[[Event], None] = lambda event: None,
) -> TuneResult:
    """Tunes every distinct subgraph of `partition` for `target`, with inputs from one run of the graph on `feeds`.

    `key_of` names a subgraph in the database. Raises DeviceError when nothing can be measured here, DatabaseError
    when results cannot be kept. KeyboardInterrupt ends the search and gives what was found.
    """
    return _Run(partition, feeds, db, target, key_of, options, progress).tune()


class _Run:
    """The state of one call of `tune_graph`."""

    def __init__(
        self,
        partition: Partition,
        feeds: Mapping[str, NDArray[Any]],
        db: Database,
        target: Target,
        key_of: Callable[[Subgraph], PlanKey],
        options: Options,
        progress: Callable[[Event], None],
    ) -> None:
        self.partition, self.feeds, self.db, self.target = partition, feeds, db, target
        self.key_of, self.options, self.progress = key_of, options, progress
        self.started = time.monotonic()
        self.effort = EFFORTS[options.effort]
        trials = options.trials if options.trials is not None else self.effort.rules.trials
        self.rules = Rules(trials, self.effort.rules.patience)
        self.name = uuid.uuid4().hex
        self.groups = distinct(partition, key_of)
        self.tasks: list[Task | None] = [None] * len(self.groups)
        self.past: list[Standing | None] = [None] * len(self.groups)
        self.lessons: list[Observation] = []
        self.subjects: dict[tuple[int, int], Subject | None] = {}
        self.folder = Path()
        self.measured_before = 0
        self.note = ""

    def tune(self) -> TuneResult:
        open_groups = [i for i, group in enumerate(self.groups) if not self._found(i, group)]
        interrupted = False
        if open_groups:
            run = self._announce()
            with tempfile.TemporaryDirectory(prefix="stitchtune-", ignore_cleanup_errors=True) as folder:
                self.folder = Path(folder)
                try:
                    self._search(open_groups)
                except KeyboardInterrupt:
                    interrupted = True
                    self._stop_all("interrupted")
            self.db.save_run(replace(run, seconds=time.monotonic() - self.started))
        return self._result(interrupted)

    # --- before the search

    def _found(self, index: int, group: Group) -> bool:
        """True when an earlier run finished the search of a group; its standing is then known."""
        if self.options.retune or self.options.more:
            return False
        rows = self.db.measurements(group.keys[0])
        reason = finished(rows, self.options.present)
        best = self.db.best(group.keys[0])
        if reason is None or best is None:
            return False
        alike = [r.measurement for r in rows if r.measurement.status == best.measurement.status]
        seconds = {one.kind: _seconds(one) for one in alike}
        model = self.db.device(self.target) if self.options.present else profile_model(self.target)
        self.past[index] = Standing(
            group.keys[0],
            group.label,
            group.occurrences,
            len({r.measurement.plan for r in rows if best.measurement.ok == (r.measurement.status != "predicted")}),
            seconds.get("unfused"),
            seconds.get("heuristic", seconds.get("unfused")),  # one row when both are the same plan
            _seconds(best.measurement),
            limit(group.sub, model) if model is not None else 0.0,
            (),
            "found",
            not best.measurement.ok,
        )
        self._tell("found", index)
        return True

    def _announce(self) -> Run:
        """Writes the run and what the graph consists of, so that reports need no model."""
        options = self.options
        chosen: tuple[tuple[str, Fact], ...] = (
            ("budget", options.budget),
            ("effort", options.effort),
            ("seed", options.seed),
            ("precision", options.precision),
            ("trials", self.rules.trials),
        )
        facts: tuple[tuple[str, Fact], ...] = (("platform", platform.platform()), ("load", os.getloadavg()[0]))
        run = Run(self.name, self.partition.graph.name, chosen, facts, time.time())
        self.db.save_run(run)
        self.db.save_graph(graph_record(self.partition, self.groups, self.name, self.target))
        for group in self.groups:
            self.db.save_structure(group.keys[0].digest, group.sub)
        return run

    def _search(self, open_groups: Sequence[int]) -> None:
        options = self.options
        if not options.present:
            self._predict(open_groups)
            return
        self._tell("device")
        device = prepare_device(self.target, options.cache)
        model = self.db.device(self.target)
        if model is None or not model.source.startswith("measured"):  # a profile's, from before the device was here
            model = measure_device(self.target, device, options.cache, options.jobs)
            self.db.save_device(model)
        self._open_tasks(open_groups, model)
        self._tell("inputs")
        self._record(open_groups)
        with Measurer(device) as measurer:
            self._rounds(measurer)
            self._confirm(measurer)

    def _predict(self, open_groups: Sequence[int]) -> None:
        """The same search where the device is not: what would be measured is compiled and predicted."""
        model = profile_model(self.target)
        if self.db.device(self.target) is None:
            self.db.save_device(model)
        self.note = why_uncompiled(self.target)
        self._open_tasks(open_groups, model)
        self._rounds(None)
        for index in open_groups:
            task = self._task(index)
            if task.started:
                task.confirm()
                self._tell("finished", index)

    def _open_tasks(self, open_groups: Sequence[int], model: DeviceModel) -> None:
        options = self.options
        shop = Workshop(
            self.db,
            model,
            self.target,
            options.cache,
            options.precision,
            options.jobs,
            options.seed,
            self.name,
            self.started,
            options.synthetic,
            self.effort.pace,
            self.effort.final,
            not self.note,
        )
        kind = Task if options.present else PredictedTask
        for i in open_groups:
            group = self.groups[i]
            task = kind(group.sub, group.keys, group.occurrences, group.label, shop)
            if not options.retune:
                foreseen = self.db.predictions(group.keys[0])[:PREDICTED] if options.present else []
                task.resume(self.db.measurements(group.keys[0]), foreseen)
            self.tasks[i] = task
        self.measured_before = sum(t.trials for t in self._present())
        if options.more:
            self.rules = Rules(self.rules.trials + max(t.trials for t in self._present()), self.rules.patience)
        self.lessons = lessons(self.db, model, frozenset(t.key.digest for t in self._present()))

    def _record(self, open_groups: Sequence[int]) -> None:
        """Runs the graph once with heuristic plans; once more with unfused ones when that did not get to its end."""
        where = recording_target(self.target)
        wanted = frozenset(c for i in open_groups for c in self.groups[i].components)
        for make in (heuristic, unfused):
            record_inputs(
                self.partition,
                [make(component.subgraph, where) for component in self.partition.components],
                wanted,
                self.feeds,
                self.folder / "inputs",
                where,
                cache=self.options.cache,
                precision=self.options.precision,
                jobs=self.options.jobs,
                timeout=60 + self.options.budget,
            )

    # --- the search

    def _rounds(self, measurer: Measurer | None) -> None:
        """Gives rounds to the tasks that promise most until all have stopped or the budget is spent."""
        while True:
            self._stop_finished()
            kept = (max(CONFIRM_SECONDS, t.confirming) for t in self._present() if t.stop != "no inputs")
            left = self._left() - sum(kept)
            arms = [t.arm() if t is not None and not t.stop else None for t in self.tasks]
            index = choose(arms)
            if index is None:
                return
            task = self._task(index)
            cost = max(task.arm().seconds, 0.0)
            if left < cost and (task.started or left < 0):
                self._stop_all("budget")
                return
            if measurer is not None:
                subject = self._subject(index, 0)
                if subject is None:
                    task.stop = "no inputs"
                    self._tell("stopped", index)
                    continue
                task.open(measurer, subject)

            def tell(doing: Doing, status: str, message: str, at: int = index) -> None:
                self._tell(doing, at, status, message)

            if not task.started:
                task.baseline(tell)
            else:
                residual = fit([*self.lessons, *self._observations()], [task.search.name])
                count = min(self.effort.batch, self.rules.trials - task.trials)
                task.round(residual, count, self.effort.pool, tell)

    def _stop_finished(self) -> None:
        for index, task in enumerate(self.tasks):
            if task is not None and not task.stop and task.started:
                task.stop = stop_reason(task.arm(), self.rules) or ""
                if task.stop:
                    self._tell("stopped", index)

    def _confirm(self, measurer: Measurer) -> None:
        for index, task in enumerate(self.tasks):
            if task is None or not task.started:
                continue
            subject = self._subject(index, 0)
            if subject is None:
                continue
            self._tell("confirming", index)
            others = []
            for position, key in enumerate(task.keys[1:], 1):
                elsewhere = self._subject(index, position)
                if elsewhere is not None:
                    others.append((key, elsewhere))
            task.open(measurer, subject)
            task.confirm(others)
            self._tell("finished", index)

    def _stop_all(self, reason: str) -> None:
        for task in self._present():
            task.stop = task.stop or reason

    def _subject(self, index: int, position: int) -> Subject | None:
        """The files of a group's member (its keys differ in slots), written when they are first wanted."""
        at = (index, position)
        if at not in self.subjects:
            group = self.groups[index]
            sub = group.sub.resized(group.keys[position].extents, group.keys[position].slots)
            inputs = recorded(self.folder / "inputs", group.components[position], sub)
            self.subjects[at] = None
            if inputs is not None:
                reference = Reference(expect(sub, inputs, self.options.precision))
                self.subjects[at] = write_subject(self.folder / f"subject{index}.{position}", sub, inputs, reference)
        return self.subjects[at]

    # --- what is known

    def _present(self) -> list[Task]:
        return [t for t in self.tasks if t is not None]

    def _task(self, index: int) -> Task:
        task = self.tasks[index]
        assert task is not None
        return task

    def _observations(self) -> list[Observation]:
        return [o for t in self._present() for o, _ in t.observations]

    def _left(self) -> float:
        return self.options.budget - (time.monotonic() - self.started)

    def _standing(self, index: int) -> Standing | None:
        task = self.tasks[index]
        return task.standing() if task is not None else self.past[index]

    def _tell(self, doing: Doing, index: int = -1, status: str = "", message: str = "") -> None:
        standing = self._standing(index) if index >= 0 else None
        self.progress(Event(doing, index, len(self.groups), self._left(), standing, status, message))

    def _result(self, interrupted: bool) -> TuneResult:
        parts = []
        for index, group in enumerate(self.groups):
            task, standing = self.tasks[index], self._standing(index)
            if standing is None:  # interrupted before it had a task
                standing = Standing(
                    group.keys[0], group.label, group.occurrences, 0, None, None, None, 0.0, (), "interrupted"
                )
            best = self.db.best(group.keys[0])
            won = task.won if task is not None else bool(standing.speedup and standing.speedup > 1)
            parts.append(Part(standing, best.measurement.plan if best else None, won))
        tried = sum(t.trials for t in self._present()) - self.measured_before
        seconds = time.monotonic() - self.started
        present = self.options.present
        return TuneResult(
            self.name,
            tuple(parts),
            tried if present else 0,
            seconds,
            interrupted,
            self.options.synthetic,
            self._quality(),
            0 if present else tried,
            self.note,
        )

    def _quality(self) -> Quality:
        pairs = [pair for t in self._present() for pair in t.observations]
        points = [o for o, _ in pairs]
        if not points:
            return quality([], [], [])
        residual = fit(points, [o.subgraph for o in points])
        costs = {id(o): c for o, c in pairs}
        base = np.array([costs[id(o)] for o in residual.points])
        measured = base * np.exp([o.log_ratio for o in residual.points])
        predicted = base * np.exp(residual.left_out())
        return quality([o.subgraph for o in residual.points], predicted.tolist(), measured.tolist())


def _seconds(measurement: Measurement) -> float | None:
    """The time of a row, which is the cost model's where nothing was run."""
    return measurement.predicted if measurement.status == "predicted" else measurement.seconds
