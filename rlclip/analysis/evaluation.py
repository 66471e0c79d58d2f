"""An evaluation on disk: answers, measures and a page; and as Markdown.

  <folder>/<task>/<step>.jsonl   every completion, its answer, gold and verdict
  <folder>/<task>/<step>.json    the measures, and how answers were drawn
  <folder>/<step>.html           a page to browse the answers of all tasks
"""
import dataclasses
import json
import os
import pathlib
from typing import Any, Mapping, NamedTuple, Sequence

from rlclip import evaluate, workdir
from rlclip.analysis import answers_page
from rlclip.types import SamplingSpec


class Result(NamedTuple):
  """One task's answers.

  Attributes:
    task: its name.
    step: of the run, 0 for a model.
    answers: those of a problem together.
    settings: how they were drawn and by what; empty where nobody knows.
  """
  task: str
  step: int
  answers: Sequence[evaluate.Answer]
  settings: Mapping[str, Any]


def settings(spec: SamplingSpec, *, seed: int, num_samples: int,
             model: str, seconds: float) -> dict[str, Any]:
  """What a reader must know to repeat an evaluation.

  Args:
    spec: how completions were drawn.
    seed: of the draws.
    num_samples: completions a problem.
    model: the model's folder or id, or the run's folder.
    seconds: what sampling and scoring took.
  """
  return {
      'model': model, 'num_samples': num_samples,
      'temperature': spec.temperature, 'top_p': spec.top_p,
      'top_k': spec.top_k, 'max_tokens': spec.max_tokens, 'seed': seed,
      'seconds': round(seconds, 1)}


def report(result: Result) -> dict[str, Any]:
  """The measures of one task as JSON values; all k up to the samples."""
  as_dict = lambda found: {
      str(key): dataclasses.asdict(value) for key, value in found.items()}
  return {
      'task': result.task, 'step': result.step,
      'num_problems': len({a.id for a in result.answers}),
      'num_completions': len(result.answers),
      'num_unscored': sum(a.score is None for a in result.answers),
      'settings': dict(result.settings),
      'versions': workdir.versions(),
      'measures': as_dict(evaluate.summary(result.answers)),
      **{f'{name}_at_k': as_dict(values) for name, values in
         evaluate.at_every_k(result.answers).items()}}


def write(folder: str | os.PathLike, results: Sequence[Result]
          ) -> dict[str, pathlib.Path]:
  """Writes the last result's files, and the page of all.

  To be called after each task: what took hours is on disk before the next.

  Args:
    folder: where to.
    results: of one step, a task each.

  Returns:
    Label to path of what was written.
  """
  last, page = results[-1], pathlib.Path(folder) / f'{results[-1].step}.html'
  answers = page.parent / last.task / f'{last.step}.jsonl'
  evaluate.write(answers, last.answers)
  workdir.write_atomically(
      answers.with_suffix('.json'),
      json.dumps(report(last), indent=2, allow_nan=False) + '\n')
  workdir.write_atomically(page, page_of(results))
  return {'answers': answers, 'measures': answers.with_suffix('.json'),
          'page': page}


def page_of(results: Sequence[Result]) -> str:
  """The HTML page of several tasks."""
  return answers_page.render([
      answers_page.Sheet(
          r.task, {'step': r.step, **r.settings}, evaluate.summary(r.answers),
          r.answers) for r in results])


def read(folder: str | os.PathLike, step: int | None = None) -> list[Result]:
  """The evaluations in a folder, of training too.

  Args:
    folder: a run's eval/, or what `write` was given.
    step: None takes the newest of each task.

  Raises:
    ValueError: there is none.
  """
  results = []
  for path in sorted(pathlib.Path(folder).glob('*/')):
    steps = [int(p.stem) for p in path.glob('*.jsonl') if p.stem.isdecimal()]
    chosen = max(steps, default=None) if step is None else step
    if chosen not in steps:
      continue
    facts = path / f'{chosen}.json'
    how = (json.loads(facts.read_text(encoding='utf-8'))['settings']
           if facts.exists() else {})
    results.append(Result(
        path.name, chosen, evaluate.read(path / f'{chosen}.jsonl'), how))
  if not results:
    which = 'any step' if step is None else f'step {step}'
    raise ValueError(
        f'Expected <task>/<step>.jsonl of {which} in {folder}, found none. '
        'Give the folder that experiments.evaluate wrote, or the eval/ of a '
        'run.')
  return results


def markdown(results: Sequence[Result]) -> str:
  """Measures by task as a table, and how the answers were drawn."""
  measures = {r.task: evaluate.summary(r.answers) for r in results}
  names = list(dict.fromkeys(n for found in measures.values() for n in found))
  row = lambda cells: '| ' + ' | '.join(cells) + ' |'
  sizes = [f'{len({a.id for a in r.answers})} x '
           f'{len(r.answers) / len({a.id for a in r.answers}):g}'
           for r in results]
  lines = [
      row(['', *measures]), row(['---', *['---:'] * len(measures)]),
      row(['problems x samples', *sizes]),
      *(row([name, *(_cell(found.get(name)) for found in measures.values())])
        for name in names)]
  drawn = [f'- {r.task}: ' + ', '.join(
      f'{key} {value}' for key, value in {'step': r.step, **r.settings}.items())
           for r in results]
  return '\n'.join([
      *lines, '', 'In brackets: 95% intervals over problems, by the bootstrap; '
      'w: Wilson\'s score interval.', '', *drawn, ''])


def _cell(estimate: evaluate.Estimate | None) -> str:
  if estimate is None:
    return ''
  return f'{estimate} w' if estimate.method == 'wilson' else str(estimate)
