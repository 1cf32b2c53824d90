"""Write checkpoints of a fit between stretches of training, and resume a fit from one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from moment_calculus.hosts.training_files import (
    StoredTraining,
    course_to_dict,
    fill_course_from_dict,
)
from moment_calculus.optimisation.outcome import Course
from moment_calculus.optimisation.training import Plan, Trainer, train
from moment_calculus.storage.errors import StoredFileError


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint file of a fit, which resumes from the file if it exists."""

    path: Path
    stored: StoredTraining  # reads and writes the file
    settings: dict[str, Any]  # the fit's; the file must have the same

    def train(
        self,
        trainer: Trainer,
        course: Course,
        plan: Callable[[Any], Plan],  # receives the function that writes a checkpoint
        parameters: Callable[[Any], dict[str, Any]],  # by name, from what the trainer keeps
    ) -> None:
        """Train, starting from the file's state if the file exists."""

        def write(course: Course, kept: Any) -> None:
            tree = {
                "parameters": parameters(trainer.keep() if kept is None else kept),
                "course": course_to_dict(course),
                "trainer": trainer.state(),
                "kept": kept,
            }
            self.stored.write(self.path, tree, self.settings)

        train(trainer, course, plan(write), self._resumed(trainer, course))

    def _resumed(self, trainer: Trainer, course: Course) -> Any:
        """Restore course and trainer from the file, if any, and return its best parameters."""
        if not self.path.exists():
            return None
        tree = self.stored.read(self.path, self.settings)
        try:
            fill_course_from_dict(course, tree["course"])
            trainer.restore(tree["trainer"])
        except (KeyError, IndexError, TypeError, ValueError, RuntimeError) as error:
            raise StoredFileError(
                f"holds no state of this fit: {type(error).__name__}: {error}",
                path=self.path,
                remedy="take another path to begin anew",
            ) from error
        return tree["kept"]
