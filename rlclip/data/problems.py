"""Maths problem sets from local JSON lines, prepared once through tfds."""
import contextlib
import fcntl
import functools
import io
import json
import os
from typing import Callable, Sequence

from rlclip.data import jsonl, tasks

_INSTRUCTION = (
    'Please reason step by step, and put your final answer within \\boxed{}.')

# Set -> its splits; the files are <data_dir>/<set>/<split>.jsonl.
SETS = {
    'gsm8k': ('train', 'test'),
    'math': ('train',),
    'math500': ('test',),
    'aime24': ('test',),
    'aime25': ('test',),
    'aime_1983_2023': ('train',),
    'amc23': ('test',),
    'minerva': ('test',),
    'olympiadbench': ('test',),
    'deepscaler': ('train',),
    'bigmath': ('train',),
}


def problem_set(
    name: str, splits: tuple[str, ...]) -> Callable[..., tasks.Task]:
  """A function from options to the task of one set."""

  def make(
      *, data_dir: str = '', cache_dir: str = '', reward: str = 'math',
      instruction: str = _INSTRUCTION, system: str = '', chat: bool = True,
  ) -> tasks.Task:
    """A maths problem set.

    Args:
      data_dir: holds the sets' folders; empty takes RLCLIP_DATA.
      cache_dir: for prepared data; empty takes RLCLIP_CACHE, or
        ~/.cache/rlclip.
      reward: scores the answers.
      instruction: follows the problem.
      system: a system message; empty leaves it to the chat template.
      chat: whether prompts are chat messages, else plain text.
    """
    folder = _folder(name, data_dir)

    def messages(example):
      text = '\n\n'.join(filter(None, (example['problem'], instruction)))
      if not chat:
        return '\n\n'.join(filter(None, (system, text))) + '\n\n'
      head = [{'role': 'system', 'content': system}] if system else []
      return [*head, {'role': 'user', 'content': text}]

    def examples(split):
      tasks.check_split(name, split, splits)
      return _prepared(name, folder, split, _cache(cache_dir))

    return tasks.Task(
        name=name, reward=reward, splits=splits, examples=examples,
        messages=messages, gold=lambda example: example['answer'])

  return make


for _name, _splits in SETS.items():
  tasks.register(_name)(problem_set(_name, _splits))


def _folder(name: str, data_dir: str) -> str:
  root = data_dir or os.environ.get('RLCLIP_DATA', '')
  if not root:
    raise ValueError(
        f'Task {name!r} needs the folder that holds {name}/. Set the '
        'environment variable RLCLIP_DATA, or the task\'s option data_dir.')
  folder = os.path.abspath(os.path.join(os.path.expanduser(root), name))
  if not os.path.isdir(folder):
    raise ValueError(
        f'Expected the data of task {name!r} in {folder}, found no such '
        'folder. Set RLCLIP_DATA, or the task\'s option data_dir, to the '
        f'folder that holds {name}/.')
  return folder


def _cache(cache_dir: str) -> str:
  root = cache_dir or os.environ.get('RLCLIP_CACHE') or '~/.cache/rlclip'
  return os.path.abspath(os.path.expanduser(root))


@functools.lru_cache(maxsize=32)
def _prepared(
    name: str, folder: str, split: str, cache: str
) -> Sequence[tasks.Example]:
  """Examples of a split out of array_record files, which are made if absent.

  The files are kept under the hash of the JSON lines' content: changed data is
  prepared anew. tfds writes to a folder of its own and renames it, and a lock
  keeps a second process from preparing the same.
  """
  # tfds takes half a second to import; generated tasks do without it.
  from rlclip.data.math_problems import math_problems_dataset_builder as builder
  path = os.path.join(folder, f'{split}.jsonl')
  if not os.path.isfile(path):
    raise ValueError(
        f'Expected the split {split!r} of task {name!r} in {path}, found no '
        'such file. Set RLCLIP_DATA, or the task\'s option data_dir, to the '
        'folder that holds it.')
  key = f'{name}-{split}-{jsonl.content_hash([path])}'
  root = os.path.join(cache, 'data', key)
  os.makedirs(root, exist_ok=True)
  config = builder.ProblemSet(name=name, folder=folder, splits=(split,))
  make = lambda: builder.Builder(
      config=config, data_dir=root, file_format='array_record')
  with open(os.path.join(root, 'lock'), 'w') as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    with contextlib.redirect_stdout(io.StringIO()):  # tfds prints its progress
      builder.prepare(make())
  source = make().as_data_source(split=split)
  return tasks.Examples(len(source), lambda i: _example(source[i]))


def _example(record) -> tasks.Example:
  """Undoes the builder's packing."""
  text = {key: value.decode('utf-8') for key, value in record.items()}
  extra = json.loads(text.pop('extra'))
  return {**extra, **text}
