"""Tasks: the registry, the local sets, and what bad data says."""
import multiprocessing
import os
import pathlib

import pytest

from rlclip.data import prepared, tasks, tokenizer
from rlclip.rewards import golds

DATA = pathlib.Path(os.environ.get(
    'RLCLIP_DATA', pathlib.Path(__file__).parents[3] / 'shared' / 'data'))
needs_data = pytest.mark.skipif(
    not DATA.is_dir(), reason=f'needs the problem sets in {DATA}')

ROWS = {  # lines of each file, as its documentation counts them
    'gsm8k/test': 1219, 'math500/test': 400, 'aime24/test': 30,
    'aime25/test': 30, 'aime_1983_2023/train': 973, 'amc23/test': 40,
    'minerva/test': 272, 'olympiadbench/test': 675, 'bigmath/train': 4812}


def write(folder, *lines, name='aime24', split='test'):
  (folder / name).mkdir(exist_ok=True)
  (folder / name / f'{split}.jsonl').write_bytes(
      b'\n'.join(line.encode() if isinstance(line, str) else line
                 for line in lines))


def get(folder, name='aime24', **options):
  return tasks.get(
      name, data_dir=str(folder), cache_dir=str(folder / 'cache'), **options)


def line(index, answer='"1"'):
  return f'{{"id": "{index}", "problem": "p{index}", "answer": {answer}}}'


@needs_data
@pytest.mark.parametrize('name', sorted(ROWS))
def test_the_local_sets_have_all_their_rows(name, tmp_path):
  name, split = name.split('/')
  task = tasks.get(name, data_dir=str(DATA), cache_dir=str(tmp_path))
  examples = task.examples(split)
  assert len(examples) == ROWS[f'{name}/{split}']
  assert len({examples[i]['id'] for i in range(len(examples))}) == len(examples)


@needs_data
def test_a_problem_is_asked_and_answered(tmp_path):
  task = tasks.get('gsm8k', data_dir=str(DATA), cache_dir=str(tmp_path))
  example = task.examples('test')[0]
  assert example['id'] == 'gsm8k-test-0'
  assert task.gold(example) == '18'
  assert 'Janet sells 16 - 3 - 4' in example['solution']
  message, = task.messages(example)
  assert message['role'] == 'user'
  assert message['content'].startswith('Janet’s ducks lay 16 eggs')
  assert '\\boxed{}' in message['content']


@needs_data
def test_unreadable_golds_are_listed(tmp_path):
  task = tasks.get('olympiadbench', data_dir=str(DATA),
                   cache_dir=str(tmp_path))
  ids = [e['id'] for e in task.examples('test')[:675]]
  around = [ids.index('olympiadbench-2045'), 0, 1]
  bad, = golds.check_golds(task, 'test', indices=around)
  assert bad == ('olympiadbench-2045', '$t(0,4]$', 'unreadable')


def test_examples_keep_the_order_and_fields_of_the_file(tmp_path):
  write(tmp_path, *map(line, range(30)), '',
        '{"id": 30, "problem": "ü", "answer": 4, "unit": null, "x": [1.5]}')
  examples = get(tmp_path).examples('test')
  assert [e['problem'] for e in examples[:30]] == [f'p{i}' for i in range(30)]
  assert examples[-1] == {
      'id': '30', 'problem': 'ü', 'answer': '4', 'unit': None, 'x': [1.5]}
  with pytest.raises(IndexError):
    examples[31]


def test_changed_data_is_prepared_anew(tmp_path):
  write(tmp_path, line(0))
  assert len(get(tmp_path).examples('test')) == 1
  prepared._prepared.cache_clear()
  write(tmp_path, line(0), line(1))
  assert len(get(tmp_path).examples('test')) == 2


@pytest.mark.parametrize('bad, reason', [
    ('{"id":', 'aime24/test.jsonl, line 2'),
    ('[1]', 'aime24/test.jsonl, line 2, got list'),
    (b'{"id": "\xff"}', 'aime24/test.jsonl, line 2.*utf-8'),
    ('{"id": 1, "problem": "p"}', r"'answer'\] in .*/test.jsonl, line 2")])
def test_a_bad_line_is_named(tmp_path, bad, reason):
  write(tmp_path, line(0), bad)
  with pytest.raises(ValueError, match=reason):
    get(tmp_path).examples('test')
  # Nothing half-made is left to be taken for the data.
  write(tmp_path, line(0))
  assert len(get(tmp_path).examples('test')) == 1


def test_an_empty_file_is_named(tmp_path):
  write(tmp_path, '')
  with pytest.raises(ValueError, match='aime24/test.jsonl.*empty'):
    get(tmp_path).examples('test')


def test_missing_data_says_what_to_set(tmp_path, monkeypatch):
  monkeypatch.delenv('RLCLIP_DATA', raising=False)
  with pytest.raises(ValueError, match='Set the environment .* RLCLIP_DATA'):
    tasks.get('gsm8k')
  with pytest.raises(ValueError, match=(
      'no such folder. Set RLCLIP_DATA.*that holds gsm8k/train.jsonl and '
      'gsm8k/test.jsonl')):
    get(tmp_path, 'gsm8k')
  (tmp_path / 'gsm8k').mkdir()
  with pytest.raises(ValueError, match='test.jsonl, found no such file'):
    get(tmp_path, 'gsm8k').examples('test')


def test_unknown_names_splits_and_options_are_named(tmp_path):
  with pytest.raises(ValueError, match='Did you mean \'gsm8k\''):
    tasks.get('gsm8')
  with pytest.raises(ValueError, match=r'\[\'digits\'\].*num_digits'):
    tasks.get('arithmetic', digits=3)
  write(tmp_path, line(0))
  with pytest.raises(ValueError, match=r'one of \[\'test\'\]; got \'train\''):
    get(tmp_path).examples('train')


def _prepare(folder):
  return len(get(folder).examples('test'))


def test_two_processes_prepare_the_same_data_at_once(tmp_path):
  write(tmp_path, *map(line, range(500)))
  with multiprocessing.get_context('spawn').Pool(2) as processes:
    assert processes.map(_prepare, [tmp_path] * 2, chunksize=1) == [500, 500]


def test_plain_text_prompts_have_no_messages(tmp_path):
  write(tmp_path, line(0))
  task = get(tmp_path, chat=False, instruction='Answer.', system='Be brief.')
  assert task.messages(task.examples('test')[0]) == (
      'Be brief.\n\np0\n\nAnswer.\n\n')


def test_a_prompt_carries_the_gold_answer_to_the_reward():
  task = tasks.get('arithmetic', num_operands=2, num_digits=1)
  example = task.examples('train')[0]
  prompt = tasks.make_prompt(
      task, example, tokenizer.character_tokenizer('0123456789+=#'))
  assert prompt.text == example['problem']
  assert len(prompt.tokens) == len('3+4=')
  assert prompt.fields['gold'] == str(sum(example['operands']))
  assert prompt.fields['marker'] == '#'
