"""Any file of problems as a task: name its columns and its reward."""
from typing import Any, Mapping

from rlclip.data import loading, prepared, sources, tasks

_PROBLEM = '{problem}'


@tasks.register('table')
def table(
    *, data_dir: str = '', hub: str = '',
    files: Mapping[str, sources.Files] | None = None,
    columns: Mapping[str, str] | None = None, completion: str = '',
    reward: str = 'math', template: str = _PROBLEM, system: str = '',
    chat: bool = True, keep: Mapping[str, Any] | None = None,
    alphabet: str = '', cache_dir: str = '',
) -> tasks.Task:
  """Problems in JSON-lines, JSON or parquet files, by column names.

  Args:
    data_dir: the folder of the files; empty takes RLCLIP_DATA.
    hub: 'org/name' or 'org/name@revision' of a data set on the hub, in place
      of a folder.
    files: from splits to names or patterns of files, as
      {'train': 'train-*.parquet', 'test': 'test.jsonl'}; one, or a list.
    columns: with 'problem', 'answer' and 'id', where they are called
      otherwise; rows are numbered unless an id is named.
    completion: the column with completions to learn from, for a warm start.
    reward: scores the answers; it gets a row's further columns as fields.
    template: of the prompt's text; {problem} stands for the problem.
    system: a system message; empty leaves it to the chat template.
    chat: whether prompts are chat messages, else plain text.
    keep: from columns to the values wanted, as {'level': [1, 2]}.
    alphabet: characters of prompts and completions, for a model of random
      weights and a token a character.
    cache_dir: for prepared data; empty takes RLCLIP_CACHE, or ~/.cache/rlclip.
  """
  if _PROBLEM not in template:
    raise ValueError(
        f'Expected a template with {_PROBLEM} in it, got {template!r}.')
  problems = loading.ProblemSet(
      'table', '', {}, prepared.Layout(id=''))
  splits, examples = loading.load(
      problems, data_dir=data_dir, hub=hub, files=files, columns=columns,
      keep=keep, cache_dir=cache_dir)

  def demonstration(example, rng=None, slip_rate=0.0):
    del rng
    tasks.check_no_slips(slip_rate)
    text = example.get(completion)
    if not isinstance(text, str):
      raise ValueError(
          f'Expected text in column {completion!r} of example '
          f'{example["id"]!r}, got {text!r:.60}. It has {sorted(example)}.')
    return text

  def messages(example):
    # Not str.format: a problem may hold braces.
    text = template.replace(_PROBLEM, example['problem'])
    return tasks.ask(text, system=system, chat=chat, end='')

  return tasks.Task(
      name='table', reward=reward, splits=splits, examples=examples,
      messages=messages, gold=lambda example: example['answer'],
      demonstration=demonstration if completion else None,
      alphabet=alphabet)
