"""Maths problem sets, from local files or the hub."""
import re
from typing import Callable

from rlclip.data import loading, prepared, tables, tasks

INSTRUCTION = (
    'Please reason step by step, and put your final answer within \\boxed{}.')

_MARKS = re.compile(r'<<[^<>]*>>')  # GSM8K's notes to a calculator


def _gsm8k(row: tables.Row, split: str) -> tables.Row:
  """The answer stands behind ####, with commas in thousands."""
  del split
  solution, _, answer = row['answer'].rpartition('####')
  return {'problem': row['question'], 'solution': solution.strip(),
          'answer': answer.strip().replace(',', '')}


def _olympiadbench(row: tables.Row, split: str) -> tables.Row:
  """The answers are a list, of one or of values in any order."""
  del split
  return {**row, 'problem': row['question'],
          'answer': ', '.join(row['final_answer'])}


def _home(hub, layout=prepared.Layout(id=''), **files):
  return loading.Home(hub, files, layout)


_QUESTIONS = prepared.Layout(problem='question', id='')

# Set -> its splits, each in <data_dir>/<set>/<split>.jsonl, and its place on
# the hub. Names there are second-hand, from programs that load them.
SETS = {
    'gsm8k': (('train', 'test'), _home(
        'openai/gsm8k', prepared.Layout(
            id='', adapt=_gsm8k, required=('question', 'answer')),
        train='main/train-*.parquet', test='main/test-*.parquet')),
    'math': (('train',), None),
    'math500': (('test',), _home(
        'HuggingFaceH4/MATH-500', test='test.jsonl')),
    'aime24': (('test',), _home(
        'HuggingFaceH4/aime_2024', test='data/train-*.parquet')),
    'aime25': (('test',), _home('math-ai/aime25', test='test.jsonl')),
    'aime_1983_2023': (('train',), None),
    'amc23': (('test',), _home(
        'math-ai/amc23', _QUESTIONS, test='data/test-*.parquet')),
    'minerva': (('test',), _home(
        'math-ai/minervamath', _QUESTIONS, test='test.jsonl')),
    'olympiadbench': (('test',), _home(
        'math-ai/olympiadbench', prepared.Layout(
            id='', adapt=_olympiadbench, required=('question', 'final_answer')),
        test='data/test-*.parquet')),
    'deepscaler': (('train',), _home(
        'agentica-org/DeepScaleR-Preview-Dataset', train='deepscaler.json')),
    'bigmath': (('train',), None),
}


def problem_set(name: str) -> Callable[..., tasks.Task]:
  """A function from options to the task of one set."""
  splits, home = SETS[name]
  problems = loading.ProblemSet(
      name, name, {split: f'{split}.jsonl' for split in splits}, home=home)

  def make(
      *, data_dir: str = '', hub: str = '', files=None, columns=None,
      keep=None, cache_dir: str = '', reward: str = 'math',
      instruction: str = INSTRUCTION, system: str = '', chat: bool = True,
  ) -> tasks.Task:
    """A maths problem set.

    Args:
      data_dir: holds the sets' folders; empty takes RLCLIP_DATA.
      hub: see `loading.load`, as the next three.
      files: from splits to files.
      columns: with problem, answer and id.
      keep: from columns to the values wanted, as {'level': [1, 2]}.
      cache_dir: for prepared data; empty takes RLCLIP_CACHE, or
        ~/.cache/rlclip.
      reward: scores the answers.
      instruction: follows the problem.
      system: a system message; empty leaves it to the chat template.
      chat: whether prompts are chat messages, else plain text.
    """
    found, examples = loading.load(
        problems, data_dir=data_dir, hub=hub, files=files, columns=columns,
        keep=keep, cache_dir=cache_dir)
    return tasks.Task(
        name=name, reward=reward, splits=found, examples=examples,
        messages=lambda example: tasks.ask(
            example['problem'], instruction, system=system, chat=chat),
        gold=lambda example: example['answer'],
        demonstration=worked_solution)

  return make


for _name in SETS:
  tasks.register(_name)(problem_set(_name))


def worked_solution(
    example: tasks.Example, rng=None, slip_rate: float = 0.0) -> str:
  """The set's own solution, and the answer in a box at its end.

  Raises:
    ValueError: an example without a solution.
  """
  del rng
  tasks.check_no_slips(slip_rate)
  solution = example.get('solution')
  if not solution:
    raise ValueError(
        f'Expected a solution in example {example["id"]!r} to learn from, got '
        f'only {sorted(example)}. Of the maths sets, gsm8k has solutions to '
        'train on.')
  solution = _MARKS.sub('', solution).strip()
  if '\\boxed{' in solution:
    return solution
  return f'{solution}\n\nThe final answer is \\boxed{{{example["answer"]}}}.'
