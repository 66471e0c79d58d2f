"""What a finished run shows: before and after, samples, where things lie."""
import pathlib
from typing import Sequence

from rlclip import evaluate, progress, workdir

_SAMPLES = 2


def show(folder: workdir.RunFolder, tasks: Sequence[str], num_steps: int,
         newest: pathlib.Path) -> None:
  """Reads the evaluations of a run's first and last step, and prints.

  Args:
    folder: of the run.
    tasks: names of its evaluation tasks; the samples are of the first.
    num_steps: its last step.
    newest: its last checkpoint.
  """
  rows = {}
  for task in tasks:
    before, after = (
        evaluate.summary(evaluate.read(folder.evaluation(task, step)))
        for step in (0, num_steps))
    # One of them may have been made again, with other settings.
    rows |= {f'{task} {measure}': (before[measure], after[measure])
             for measure in after if measure in before}
  progress.show_comparison(rows)
  answers = evaluate.read(folder.evaluation(tasks[0], num_steps))
  progress.show_samples([
      progress.Sample(a.prompt, a.completion, a.score)
      for a in answers[:_SAMPLES]])
  progress.show_paths({
      'metrics': folder.metrics, 'TensorBoard': folder.tensorboard,
      'checkpoint': newest, 'rollouts': folder.rollouts})
