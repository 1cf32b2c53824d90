"""Checkpoints of a fit: written between its stretches, and resumed exactly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moment_calculus.hosts.stored import StoredTraining, course_tree, fill_course
from moment_calculus.optimisation.outcome import Course
from moment_calculus.optimisation.training import Plan, Trainer, train
from moment_calculus.storage.errors import StoredFileError


@dataclass(frozen=True)
class Checkpoint:
    """A file that a fit goes on from.

    Args:
        path: the file.
        stored: reads and writes it.
        settings: of the fit, which those of the file have to equal.
    """

    path: Path
    stored: StoredTraining
    settings: dict[str, Any]

    def train(
        self,
        trainer: Trainer,
        course: Course,
        plan: Callable[[Any], Plan],
        parameters: Callable[[Any], dict[str, Any]],
    ) -> None:
        """Train, from the file if there is one.

        Args:
            trainer: the method.
            course: new.
            plan: what is done between the stretches, given what writes.
            parameters: by name as they are stored, of what the trainer keeps.
        """

        def write(course: Course, kept: Any) -> None:
            tree = {
                "parameters": parameters(trainer.keep() if kept is None else kept),
                "course": course_tree(course),
                "trainer": trainer.state(),
                "kept": kept,
            }
            self.stored.write(self.path, tree, self.settings)

        train(trainer, course, plan(write), self._resumed(trainer, course))

    def _resumed(self, trainer: Trainer, course: Course) -> Any:
        """The best parameters so far, if the file was there."""
        if not self.path.exists():
            return None
        tree = self.stored.read(self.path, self.settings)
        try:
            fill_course(course, tree["course"])
            trainer.restore(tree["trainer"])
        except (KeyError, IndexError, TypeError, ValueError, RuntimeError) as error:
            raise StoredFileError(
                f"holds no state of this fit: {type(error).__name__}: {error}",
                path=self.path,
                remedy="take another path to begin anew",
            ) from error
        return tree["kept"]
