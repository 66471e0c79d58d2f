"""A run's learning curve as a PNG, and its evaluations as a table."""
import os
import pathlib
from typing import Mapping, Sequence

from rlclip import evaluate, metrics, workdir

# Panel: the metrics drawn in it.
PANELS = {
    'reward and held-out pass@1': ('reward',),
    'share of tokens clipped': ('clip_ratio/low_mean', 'clip_ratio/high_mean'),
    'tokens a completion': ('completions/mean_length',),
    'entropy, nats a token': ('entropy',),
}


def evaluations(folder: workdir.RunFolder, task: str
                ) -> dict[int, evaluate.Estimate]:
  """pass@1 with its 95% interval, by step.

  Raises:
    ValueError: if the run has no evaluation of this task.
  """
  paths = sorted(folder.evaluation(task, 0).parent.glob('*.jsonl'),
                 key=lambda path: int(path.stem))
  if not paths:
    raise ValueError(
        f'{folder.path} has no eval/{task}/<step>.jsonl. Give the folder of a '
        f'run, and a task that it evaluated.')
  return {int(path.stem): evaluate.summary(evaluate.read(path))['pass@1']
          for path in paths}


def table(estimates: Mapping[int, evaluate.Estimate]) -> str:
  """A Markdown table: step, pass@1, 95% interval, problems."""
  rows = [f'| {step} | {e.value:.3f} | [{e.low:.3f}, {e.high:.3f}] | '
          f'{e.num_problems} |' for step, e in estimates.items()]
  return '\n'.join(
      ['| step | pass@1 | 95% interval | problems |',
       '| ---: | ---: | --- | ---: |', *rows])


def draw(folders: Sequence[workdir.RunFolder], task: str,
         path: str | os.PathLike) -> None:
  """Draws one line a run into a PNG of four panels.

  Args:
    folders: runs to lay over one another, one color each.
    task: whose evaluations are drawn, with their intervals.
    path: of the PNG.
  """
  import matplotlib
  matplotlib.use('agg')
  from matplotlib import pyplot
  figure, axes = pyplot.subplots(2, 2, figsize=(9, 6), layout='constrained')
  for number, folder in enumerate(folders):
    lines = metrics.read(folder.metrics)
    color = f'C{number}'
    for axis, (title, names) in zip(axes.flat, PANELS.items(), strict=True):
      for name, style in zip(names, ('-', '--')):
        points = [(line['step'], line[name]) for line in lines if name in line]
        label = f'{name} ({folder.path.name})'
        axis.plot(*zip(*points), style, color=color, label=label, lw=1)
      axis.set(title=title, xlabel='step')
    found = evaluations(folder, task)
    steps, values = list(found), [e.value for e in found.values()]
    spread = [[e.value - e.low for e in found.values()],
              [e.high - e.value for e in found.values()]]
    axes.flat[0].errorbar(
        steps, values, spread, fmt='o', color=color, capsize=3,
        label=f'pass@1, 95% ({folder.path.name})')
  for axis in axes.flat:
    axis.legend(fontsize=6)
    axis.grid(alpha=0.3)
  pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
  figure.savefig(path, dpi=110)
  pyplot.close(figure)
