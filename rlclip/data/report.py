"""What is wrong with a task's data, found before training meets it."""
import dataclasses
import functools
from typing import Any, Callable, Mapping, NamedTuple, Sequence

import numpy as np

from rlclip.data import overlap, tasks
from rlclip.data.tokenizer import Tokenizer

FLAWS = ('too_long', 'duplicate', 'overlap')  # that may be dropped

_SHOWN = 5  # ids in a line
_LARGEST = 1 << 17


class Report(NamedTuple):
  """What was counted; ids are in the order of the examples looked at.

  Attributes:
    task: its name.
    split: of the task.
    num_rows: of the split.
    num_checked: of them looked at.
    limit: longest prompt, in tokens.
    too_long: (id, tokens) of longer ones.
    unscorable: gold answers that the reward cannot use, each with 'id', 'gold'
      and 'reason'.
    num_golds: gold answers that were tried.
    duplicates: (id, id of the first one like it).
    overlaps: with the test splits of evaluation tasks.
    num_tests: test problems that were compared, by task.
  """
  task: str
  split: str
  num_rows: int
  num_checked: int
  limit: int
  too_long: Sequence[tuple[str, int]]
  unscorable: Sequence[Any]
  num_golds: int
  duplicates: Sequence[tuple[str, str]]
  overlaps: Sequence[overlap.Overlap]
  num_tests: Mapping[str, int]


def make(
    task: tasks.Task, tokenizer: Tokenizer, *, limit: int,
    indices: Sequence[int], tests: Mapping[str, Sequence[tasks.Example]],
    check_golds: Callable[[Sequence[tasks.Example]], tuple[Sequence, int]]
    | None = None) -> Report:
  """Looks at examples of the training split.

  Args:
    task: whose data.
    tokenizer: of the model.
    limit: longest prompt the sampler takes, in tokens.
    indices: of the examples, none twice.
    tests: from evaluation tasks to their test examples.
    check_golds: lists those of some examples that cannot be scored, and says
      how many it has tried; None tries none.

  Returns:
    The report. Apart from the golds', its cost is some 0.7 ms of processor time
    a row, most of it the tokenizer's: half a minute for 40,000.
  """
  source = task.examples('train')
  examples = source.take(indices)
  encoded = tokenizer.encode_prompts(list(map(task.messages, examples)))
  ids = [example['id'] for example in examples]
  problems = [example['problem'] for example in examples]
  bad, num_golds = check_golds(examples) if check_golds else ([], 0)
  return Report(
      task=task.name, split='train', num_rows=len(source),
      num_checked=len(examples), limit=limit,
      too_long=[(i, len(tokens)) for i, tokens in zip(ids, encoded)
                if len(tokens) > limit],
      unscorable=bad, num_golds=num_golds,
      duplicates=overlap.duplicates(
          ids, list(map(overlap.normalized, problems))),
      overlaps=overlap.overlaps(ids, problems, {
          name: ([e['id'] for e in some], [e['problem'] for e in some])
          for name, some in tests.items()}),
      num_tests={name: len(some) for name, some in tests.items()})


def without(
    task: tasks.Task, tokenizer: Tokenizer, *, drop: Sequence[str], limit: int,
    tests: Callable[[], Mapping[str, Sequence[tasks.Example]]]) -> tasks.Task:
  """The task with some kinds of rows left out of its training split.

  The rows are looked at when the split is first asked for. Unscorable ones
  need no dropping: what has no reward is left out of the loss.

  Args:
    task: any but a mixture.
    tokenizer: of the model.
    drop: of FLAWS.
    limit: see `make`.
    tests: gives the test examples of `make`.

  Raises:
    ValueError: a mixture, a data set of generated size, or no rows left.
  """
  if task.order is not None:
    raise ValueError(
        f'Expected task.drop to be empty for {task.name!r}, which has an order '
        f'of its own, got {tuple(drop)}.')

  @functools.cache
  def kept() -> tuple[tasks.Examples, np.ndarray]:
    source = task.examples('train')
    if len(source) > _LARGEST:
      raise ValueError(
          f'Expected at most {_LARGEST:,} rows to look at for task.drop, got '
          f'{len(source):,} of {task.name!r}.')
    found = make(task, tokenizer, limit=limit, indices=range(len(source)),
                 tests=tests())
    flawed = {
        'too_long': {i for i, _ in found.too_long},
        'duplicate': {i for i, _ in found.duplicates},
        'overlap': {row.id for row in found.overlaps}}
    gone = set().union(*(flawed[kind] for kind in drop))
    left = [i for i, example in enumerate(source[:])
            if example['id'] not in gone]
    if not left:
      counts = {kind: len(flawed[kind]) for kind in drop}
      raise ValueError(
          f'Expected rows of {task.name}/train that task.drop leaves, got an '
          f'empty data set: of {len(source)} rows {counts} are dropped. Raise '
          'rollout.prompt_length or drop less.')
    return source, np.array(left)

  def examples(split):
    if split != 'train':
      return task.examples(split)
    source, left = kept()
    return tasks.Examples(
        len(left), lambda i: source[int(left[i])],
        lambda indices: source.take(left[indices]))

  return dataclasses.replace(task, examples=examples)


def lines(report: Report) -> list[str]:
  """The report for people: a count a line, with the first ids.

  Unscorable gold answers are all listed.
  """
  r = report
  compared = ', '.join(f'{n} of {name}' for name, n in r.num_tests.items())
  counts = (
      (f'prompts longer than {r.limit} tokens', r.too_long,
       lambda row: f'{row[0]} ({row[1]})'),
      ('duplicates', r.duplicates, lambda row: f'{row[0]} = {row[1]}'),
      (f'overlaps with {compared or "no test problems"}', r.overlaps,
       lambda row: f'{row.id} ~ {row.task}/{row.test_id} ({row.share:.0%})'),
      (f'unscorable golds, of {r.num_golds:,} tried', r.unscorable, None))
  made = [f'{r.task}/{r.split}: {r.num_rows:,} rows, {r.num_checked:,} looked '
          f'at']
  for name, found, show in counts:
    line = f'{len(found):>7,} {name}'
    if show and found:
      more = ', ...' if len(found) > _SHOWN else ''
      line += f': {", ".join(map(show, found[:_SHOWN]))}{more}'
    made.append(line)
  made += [f'          {bad.id}: {bad.gold[:60]!r} ({bad.reason})'
           for bad in r.unscorable]
  return made
