"""What a run shows while it trains and when it ends, on a terminal or in a log.

On a terminal: one live bar with reward, pass@1, clip fraction and time left.
Elsewhere: one plain line a step, so that a log file stays a log file.
"""
import contextlib
import logging
import os
import time
from typing import Callable, Iterator, Mapping, NamedTuple, Sequence

import rich.console
import rich.panel
import rich.progress
import rich.table
import rich.text

from rlclip import evaluate

# Label: the metric's name.
SHOWN = {
    'reward': 'reward',
    'pass@1': 'pass@1',
    'clipped': 'clip_ratio/region_mean',
}
_log = logging.getLogger(__name__)


class Sample(NamedTuple):
  """A completion to show: the texts, and what the verifier gave it."""
  prompt: str
  completion: str
  reward: float | None


@contextlib.contextmanager
def bar(
    total: int, *, done: int = 0, shown: Mapping[str, str] | None = None,
    unit: str = 'step', console: rich.console.Console | None = None
) -> Iterator[Callable[[int, Mapping[str, float]], None]]:
  """Yields `update(step, metrics)`, to be called after each step.

  A metric that a step did not measure keeps its last value; one that was
  never measured shows as a dash.

  Args:
    total: steps of the whole run.
    done: steps that an earlier process did; time left counts from here.
    shown: label to metric name; None takes SHOWN.
    unit: what is counted.
    console: where to draw; None takes standard output.
  """
  shown = SHOWN if shown is None else shown
  console = console or rich.console.Console()
  last: dict[str, float] = {}
  if not console.is_terminal:
    begun = time.monotonic()

    def write_line(step, metrics):
      last.update({n: metrics[n] for n in shown.values() if n in metrics})
      rate = (time.monotonic() - begun) / max(step - done, 1)
      _log.info('%s %d/%d  %s  %s left', unit, step, total,
                _values(shown, last), _clock(rate * (total - step)))

    yield write_line
    return
  columns = (
      rich.progress.TextColumn(unit), rich.progress.MofNCompleteColumn(),
      rich.progress.BarColumn(),
      rich.progress.TextColumn('{task.fields[text]}'),
      rich.progress.TimeElapsedColumn(), rich.progress.TextColumn('left'),
      rich.progress.TimeRemainingColumn())
  with rich.progress.Progress(*columns, console=console) as progress:
    task = progress.add_task(
        '', total=total, completed=done, text=_values(shown, last))

    def draw(step, metrics):
      last.update({n: metrics[n] for n in shown.values() if n in metrics})
      progress.update(task, completed=step, text=_values(shown, last))

    yield draw


@contextlib.contextmanager
def problems(
    total: int, *, console: rich.console.Console | None = None
) -> Iterator[Callable[[int, int], None] | None]:
  """Yields `update(done, tokens)` for an evaluation; None off a terminal.

  Args:
    total: problems to answer.
    console: where to draw; None takes standard output.
  """
  console = console or rich.console.Console()
  if not console.is_terminal:
    yield None
    return
  begun, rate = time.monotonic(), 'tokens/s'
  with bar(total, shown={rate: rate}, unit='problem', console=console) as draw:
    yield lambda done, tokens: draw(
        done, {rate: tokens / (time.monotonic() - begun)})


def show_comparison(
    rows: Mapping[str, tuple[evaluate.Estimate, evaluate.Estimate]], *,
    title: str = 'Before and after',
    console: rich.console.Console | None = None) -> None:
  """Prints one line a test set: before, after and the change.

  Args:
    rows: name of the test set (and measure) to its estimates.
    title: above the table.
    console: where to print; None takes standard output.
  """
  table = rich.table.Table(
      title=title, caption='in brackets: 95% confidence intervals')
  table.add_column('test set')
  for name in ('before', 'after', 'change'):
    table.add_column(name, justify='right')
  for name, (before, after) in rows.items():
    table.add_row(
        rich.text.Text(name), rich.text.Text(str(before)),
        rich.text.Text(str(after)), f'{after.value - before.value:+.3f}')
  (console or rich.console.Console()).print(table)


def show_evaluation(
    task: str, measures: Mapping[str, evaluate.Estimate], *,
    console: rich.console.Console | None = None) -> None:
  """Prints one line a measure: its value, its interval, and how that was made.

  Args:
    task: the test set's name.
    measures: of `evaluate.summary`.
    console: where to print; None takes standard output.
  """
  table = rich.table.Table(
      caption='95% intervals over problems', caption_justify='left')
  for name, justify in (('test set', 'left'), ('measure', 'left'),
                        ('value', 'right'), ('95% interval', 'right'),
                        ('by', 'left'), ('problems', 'right')):
    table.add_column(name, justify=justify, no_wrap=True)
  for name, found in measures.items():
    interval = ('' if found.method == 'none' else
                f'{found.low:.3f} - {found.high:.3f}')
    table.add_row(
        rich.text.Text(task), name, f'{found.value:.3f}', interval,
        found.method, str(found.num_problems))
  (console or rich.console.Console()).print(table)


def show_samples(
    samples: Sequence[Sample], *,
    console: rich.console.Console | None = None) -> None:
  """Prints completions as they are: no markup or control code takes effect."""
  console = console or rich.console.Console()
  for sample in samples:
    graded = 'unscored' if sample.reward is None else f'{sample.reward:g}'
    text = rich.text.Text.assemble(
        (printable(sample.prompt), 'dim'), '\n', printable(sample.completion))
    console.print(rich.panel.Panel(
        text, title=f'reward {graded}', title_align='left'))


def show_paths(
    paths: Mapping[str, str | os.PathLike], *,
    console: rich.console.Console | None = None) -> None:
  """Prints where things lie: one `label  path` a line, never wrapped."""
  console = console or rich.console.Console()
  width = max(map(len, paths), default=0)
  for label, path in paths.items():
    console.print(
        rich.text.Text(f'{label:{width}}  {os.fspath(path)}'), soft_wrap=True)


def printable(text: str) -> str:
  """Spells out what a terminal would act on: ESC becomes the four signs \\x1b.

  Models write such bytes; raw, they would move the cursor or color the screen.
  """
  return ''.join(
      sign if sign.isprintable() or sign in '\n\t'
      else sign.encode('unicode_escape').decode() for sign in text)


def _values(shown, last):
  return '  '.join(
      f'{label} {last[name]:.3f}' if name in last else f'{label} -'
      for label, name in shown.items())


def _clock(seconds):
  minutes, seconds = divmod(round(seconds), 60)
  hours, minutes = divmod(minutes, 60)
  return f'{hours}:{minutes:02}:{seconds:02}'
