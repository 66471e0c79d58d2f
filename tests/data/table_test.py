"""Problems in any file: kinds of files, names of columns, bad rows."""
import gzip
import json

from huggingface_hub import constants
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rlclip.data import tasks

ROWS = [{'q': f'{a}+1=', 'target': a + 1, 'level': a % 3, 'prompt': 'x'}
        for a in range(9)]
COLUMNS = {'problem': 'q', 'answer': 'target'}


def write(path, rows):
  lines = '\n'.join(map(json.dumps, rows)).encode()
  path.parent.mkdir(parents=True, exist_ok=True)
  if path.suffix == '.gz':
    lines = gzip.compress(lines)
  elif path.suffix == '.json':
    lines = json.dumps(rows).encode()
  if path.suffix == '.parquet':
    pq.write_table(pa.Table.from_pylist(rows), path)
  else:
    path.write_bytes(lines)


def get(folder, name='a.jsonl', **options):
  options = {'files': {'train': name}, 'columns': COLUMNS, **options}
  return tasks.get('table', data_dir=str(folder),
                   cache_dir=str(folder / 'cache'), **options)


@pytest.mark.parametrize(
    'name', ['a.jsonl', 'a.jsonl.gz', 'a.json', 'a.parquet'])
def test_every_kind_of_file_gives_the_same_examples(tmp_path, name):
  write(tmp_path / name, ROWS)
  task = get(tmp_path, name, reward='arithmetic')
  examples = task.examples('train')
  assert [task.gold(e) for e in examples[:]] == [str(a) for a in range(1, 10)]
  assert examples[4] == {
      'id': 'table-train-4', 'problem': '4+1=', 'answer': '5', 'level': 1,
      'prompt': 'x'}
  assert (task.splits, task.reward) == (('train',), 'arithmetic')


def test_patterns_join_files_and_splits_have_their_own(tmp_path):
  for name, rows in (('b-1', ROWS[3:]), ('b-0', ROWS[:3]), ('c', ROWS[:1])):
    write(tmp_path / f'{name}.parquet', rows)
  task = get(tmp_path, files={'train': 'b-*.parquet', 'test': ['c.parquet']})
  assert [e['problem'] for e in task.examples('train')[:]] == [
      row['q'] for row in ROWS]
  assert len(task.examples('test')) == 1


def test_a_template_is_filled_once_and_literally(tmp_path):
  write(tmp_path / 'a.jsonl', [{'q': '{0.__class__} {problem}', 'target': 1}])
  task = get(tmp_path, template='Q: {problem}\nA:', chat=False)
  assert task.messages(task.examples('train')[0]) == (
      'Q: {0.__class__} {problem}\nA:')


def test_rows_are_kept_by_the_values_of_a_column(tmp_path):
  write(tmp_path / 'a.jsonl', ROWS)
  levels = lambda keep: [
      e['level'] for e in get(tmp_path, keep=keep).examples('train')[:]]
  assert levels({'level': [0, 2]}) == [0, 2, 0, 2, 0, 2]
  assert levels({'level': 1}) == [1, 1, 1]
  with pytest.raises(ValueError, match=(
      r"empty data set: 9 rows, none .*'level': \[\"'0'\", \"'1'\"")):
    levels({'level': 7})
  with pytest.raises(ValueError, match='column \'grade\'.*, line 1, got only'):
    levels({'grade': 7})


@pytest.mark.parametrize('row, reason', [
    ({'q': 'p'}, r"\['target'\] in .*a.jsonl, line 2, got only \['q'\]"),
    ({'q': 'p', 'target': ['1', '2']}, "'target' of .*, line 2, got list: .'1"),
    ({'q': 'p', 'target': None}, "'target' of .*, line 2, got NoneType"),
    ({'q': 'p', 'target': True}, "'target' of .*, line 2, got bool"),
    ({'q': {'text': 'p'}, 'target': '1'}, "'q' of .*, line 2, got dict"),
    ({'q': 'p', 'target': '\ud800'}, "Unicode text in column 'target' of .* 2"),
    ({'q': 'p', 'target': 1, 'name': 'n'}, "than 'n' in .*2: .*1 has it")])
def test_a_row_of_another_shape_is_named(tmp_path, row, reason):
  write(tmp_path / 'a.jsonl', [{'q': 'p', 'target': '1', 'name': 'n'}, row])
  columns = {**COLUMNS, 'id': 'name'} if 'name' in row else COLUMNS
  with pytest.raises(ValueError, match=reason):
    get(tmp_path, columns=columns).examples('train')


@pytest.mark.parametrize('text', ['a' * 1_000_000, '{' * 10_000, 'a\0b\x1b',
                                  '__import__("os")', '{0.__class__} %s'])
def test_odd_answers_are_carried_unchanged(tmp_path, text):
  write(tmp_path / 'a.jsonl', [{'q': 'p', 'target': text}])
  task = get(tmp_path)
  assert task.gold(task.examples('train')[0]) == text


def test_damaged_files_are_named(tmp_path):
  write(tmp_path / 'a.parquet', ROWS)
  data = (tmp_path / 'a.parquet').read_bytes()
  (tmp_path / 'a.parquet').write_bytes(data[:-20])
  compressed = gzip.compress(b'{"q": "p", "target": 1}\n' * 999)
  (tmp_path / 'a.jsonl.gz').write_bytes(compressed[:40])
  (tmp_path / 'a.json').write_text('[' * 100_000)
  latin = pa.table({'q': pa.array([b'p']), 'target': pa.array([b'\xff'])})
  utf8 = latin.cast(pa.schema([('q', pa.string()), ('target', pa.binary())]))
  pq.write_table(pa.Table.from_arrays(
      [utf8['q'], pa.chunked_array([pa.Array.from_buffers(
          pa.string(), 1, utf8['target'].chunk(0).buffers())])],
      ['q', 'target']), tmp_path / 'b.parquet')
  (tmp_path / 'a.csv').write_text('q,target\n')
  for name in ('a.parquet', 'a.jsonl.gz', 'a.json', 'b.parquet', 'a.csv'):
    with pytest.raises(ValueError, match=f'/{name}'):
      get(tmp_path, name).examples('train')


def test_what_is_missing_is_said(tmp_path):
  write(tmp_path / 'a.jsonl', ROWS)
  with pytest.raises(ValueError, match=r"columns for .*'id'\], got \['gold'\]"):
    get(tmp_path, columns={'gold': 'target'})
  with pytest.raises(ValueError, match='Expected files'):
    get(tmp_path, files=None)
  with pytest.raises(ValueError, match='a template with {problem}'):
    get(tmp_path, template='problem')
  with pytest.raises(ValueError, match="Expected files with hub='a/b'"):
    tasks.get('table', hub='a/b')
  with pytest.raises(ValueError, match='no place on the hub is known'):
    tasks.get('bigmath', hub='home')


def cached_on_the_hub(cache, monkeypatch, repo, files):
  """What huggingface_hub keeps of a data set, and no network."""
  folder = cache / f'datasets--{repo.replace("/", "--")}'
  for name, rows in files.items():
    write(folder / 'snapshots' / ('0' * 40) / name, rows)
  (folder / 'refs').mkdir()
  (folder / 'refs' / 'main').write_text('0' * 40)
  for name, value in (('HF_HUB_CACHE', str(cache)), ('HF_HUB_OFFLINE', True)):
    monkeypatch.setattr(constants, name, value)


def test_a_data_set_on_the_hub_by_its_columns(tmp_path, monkeypatch):
  cached_on_the_hub(tmp_path / 'hub', monkeypatch, 'org/set', {
      'data/train-0.parquet': ROWS, 'data/test-0.parquet': ROWS[:2]})
  task = get(tmp_path, hub='org/set', files={'train': 'data/train-*.parquet'})
  assert len(task.examples('train')) == 9
  with pytest.raises(ValueError, match="hub, got 'org/other'.*data_dir"):
    get(tmp_path, hub='org/other').examples('train')


def test_gsm8k_of_the_hub_is_brought_into_shape(tmp_path, monkeypatch):
  cached_on_the_hub(tmp_path / 'hub', monkeypatch, 'openai/gsm8k', {
      'main/test-00000-of-00001.parquet': [{
          'question': 'How many?',
          'answer': 'So 2*600=<<2*600=1200>>1200.\n#### 1,200'}]})
  task = tasks.get('gsm8k', hub='home', cache_dir=str(tmp_path / 'cache'))
  example = task.examples('test')[0]
  assert (example['problem'], task.gold(example)) == ('How many?', '1200')
  assert task.demonstration(example) == (
      'So 2*600=1200.\n\nThe final answer is \\boxed{1200}.')
  with pytest.raises(ValueError, match='slip_rate of 0'):
    task.demonstration(example, None, 0.1)
