"""Programming problem sets, whose answers are programs and golds are tests.

The gold is a JSON object in a form that `rewards.code.score` takes: a row of
HumanEval or of MBPP without what is not about tests, or `tests`, a list of
{input, output} for a program that reads and prints.
"""
import json
from typing import Callable

from rlclip.data import loading, prepared, splits, tables, tasks

_PROGRAM = 'Answer with the whole program in one ```python block.'
_STDIN = ('Write a Python program that reads standard input and writes '
          f'standard output. {_PROGRAM}')
_MBPP_TEST = range(11, 511)  # task ids of the published test part


def _gold(**parts) -> str:
  return json.dumps(parts, ensure_ascii=False)


def _humaneval(row: tables.Row, split: str) -> tables.Row:
  del split
  gold = _gold(**{key: row[key] for key in ('prompt', 'test', 'entry_point')})
  problem = f'Complete this function.\n\n```python\n{row["prompt"]}```'
  return {**row, 'id': row['task_id'], 'problem': problem, 'answer': gold,
          'program': row['prompt'] + row['canonical_solution']}


def _mbpp(row: tables.Row, split: str) -> tables.Row | None:
  if (row['task_id'] in _MBPP_TEST) != (split == 'test'):
    return None
  gold = _gold(test_setup_code=row['test_setup_code'],
               test_list=[*row['test_list'], *row['challenge_test_list']])
  shown = '\n'.join(row['test_list'])  # the name of the function is in there
  problem = f'{row["text"]}\n\nIt should pass these tests:\n\n{shown}'
  return {**row, 'id': f'mbpp-{row["task_id"]}', 'problem': problem,
          'answer': gold, 'program': row['code']}


def _code_contests(row: tables.Row, split: str) -> tables.Row | None:
  if splits.split_of(row['problem']) != split:
    return None
  return {**row, 'answer': _gold(tests=row['tests'])}


_HUMANEVAL = prepared.Layout(adapt=_humaneval, required=(
    'task_id', 'prompt', 'canonical_solution', 'test', 'entry_point'))
_MBPP = prepared.Layout(adapt=_mbpp, required=(
    'task_id', 'text', 'code', 'test_setup_code', 'test_list',
    'challenge_test_list'))
_CONTESTS = prepared.Layout(
    adapt=_code_contests, required=('id', 'problem', 'tests'))

# Set, its instruction, and what it keeps unless told otherwise. Names on the
# hub are second-hand.
SETS = {
    'humaneval': (loading.ProblemSet(
        'humaneval', 'humaneval', {'test': 'HumanEval.jsonl.gz'}, _HUMANEVAL,
        loading.Home('openai/openai_humaneval',
                     {'test': 'openai_humaneval/test-*.parquet'}, _HUMANEVAL)),
                  _PROGRAM, {}),
    'mbpp': (loading.ProblemSet(
        'mbpp', 'mbpp', {'train': 'mbpp.jsonl', 'test': 'mbpp.jsonl'}, _MBPP,
        loading.Home('google-research-datasets/mbpp',
                     {'train': 'full/*.parquet', 'test': 'full/*.parquet'},
                     _MBPP)), _PROGRAM, {}),
    # Where several outputs are right, comparing text refuses right programs.
    'code_contests': (loading.ProblemSet(
        'code_contests', 'code_contests',
        {'train': 'test.jsonl', 'test': 'test.jsonl'}, _CONTESTS), _STDIN,
                      {'any_valid_output': False}),
}


def program_set(name: str) -> Callable[..., tasks.Task]:
  """A function from options to the task of one set."""
  problems, own_instruction, own_keep = SETS[name]

  def make(
      *, data_dir: str = '', hub: str = '', files=None, columns=None,
      keep=None, cache_dir: str = '', reward: str = 'code',
      instruction: str = own_instruction, system: str = '', chat: bool = True,
  ) -> tasks.Task:
    """A set of programming problems; options as of the maths sets.

    MBPP's test part is task ids 11 to 510, the rest is for training; of
    code_contests, a hash of the problem picks one in eight for testing.
    """
    found, examples = loading.load(
        problems, data_dir=data_dir, hub=hub, files=files, columns=columns,
        keep=own_keep if keep is None else keep, cache_dir=cache_dir)
    return tasks.Task(
        name=name, reward=reward, splits=found, examples=examples,
        messages=lambda example: tasks.ask(
            example['problem'], instruction, system=system, chat=chat),
        gold=lambda example: example['answer'],
        demonstration=None if name == 'code_contests' else _program)

  return make


for _name in SETS:
  tasks.register(_name)(program_set(_name))


def _program(example: tasks.Example, rng=None, slip_rate: float = 0.0) -> str:
  """The reference program, as the instruction asks for it."""
  del rng
  tasks.check_no_slips(slip_rate)
  return f'```python\n{example["program"].strip()}\n```'
