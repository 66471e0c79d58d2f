"""The bank of rollouts: there and back, and what a torn file says."""
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rlclip.data import bank


def rollout(step=3, **changes):
  row = bank.Rollout(
      step=step, group=0, example_id='gsm8k-1', request_id=17, weights=2,
      prompt_tokens=np.array([5, 6], np.int32),
      tokens=np.array([7, 8, 1], np.int32), text='so 4', finish='stop',
      behavior_logps=np.array([-0.5, -0.25, 0], np.float32), old_logps=None,
      reward=1.0, rewards={'math': 1.0, 'final_answer': None}, gold='4',
      advantage=0.5)
  return row._replace(**changes)


def test_what_is_written_is_read(tmp_path):
  path = tmp_path / 'rollouts' / bank.file_name(3)
  rows = [rollout(), rollout(
      reward=None, finish='length', tokens=np.zeros(0, np.int32),
      behavior_logps=np.zeros(0, np.float32))]
  bank.write(path, rows, run={'temperature': 0.8})
  table = bank.read(path)
  first, second = table.to_pylist()
  assert first == {
      'step': 3, 'group': 0, 'example_id': 'gsm8k-1', 'request_id': 17,
      'weights': 2, 'prompt_tokens': [5, 6], 'tokens': [7, 8, 1],
      'text': 'so 4', 'finish': 'stop', 'behavior_logps': [-0.5, -0.25, 0],
      'old_logps': None, 'reward': 1.0,
      'rewards': [('math', 1.0), ('final_answer', None)], 'gold': '4',
      'advantage': 0.5, 'dropped': False}
  assert (second['reward'], second['tokens']) == (None, [])
  assert bank.run_of(table) == {'temperature': 0.8}
  assert os.listdir(path.parent) == ['00000003.parquet']


def test_a_folder_is_read_in_the_order_of_steps(tmp_path):
  for step in (10, 9, 123_456_789):
    bank.write(tmp_path / bank.file_name(step), [rollout(step)])
  (tmp_path / '.x.partial').write_bytes(b'half')
  assert bank.read(tmp_path).column('step').to_pylist() == [
      9, 10, 123_456_789]
  assert bank.read(tmp_path, columns=['gold']).column_names == ['gold']


def test_a_file_from_before_groups_were_dropped_is_read(tmp_path):
  old, new = (tmp_path / bank.file_name(step) for step in (1, 2))
  bank.write(old, [rollout(1)])
  pq.write_table(pq.read_table(old).drop_columns(['dropped']), old)
  bank.write(new, [rollout(2, dropped=True)])
  assert bank.read(tmp_path).column('dropped').to_pylist() == [False, True]
  some = bank.read(tmp_path, columns=['dropped', 'step'])
  assert some.column_names == ['dropped', 'step']
  only = bank.read(tmp_path, columns=['dropped'])
  assert only.column('dropped').to_pylist() == [False, True]


def test_a_step_is_replaced_whole(tmp_path):
  path = tmp_path / bank.file_name(0)
  bank.write(path, [rollout()] * 5)
  bank.write(path, [rollout()])
  assert bank.read(path).num_rows == 1


def test_an_empty_step_is_a_file(tmp_path):
  bank.write(tmp_path / bank.file_name(0), [])
  assert bank.read(tmp_path).num_rows == 0


@pytest.mark.parametrize('share', [0.0, 0.5, 0.99])
def test_a_truncated_file_is_named(tmp_path, share):
  path = tmp_path / bank.file_name(4)
  bank.write(path, [rollout()])
  data = path.read_bytes()
  path.write_bytes(data[:int(share * len(data))])
  with pytest.raises(ValueError, match='00000004.parquet.*truncated'):
    bank.read(tmp_path)


def test_a_foreign_parquet_is_refused(tmp_path):
  path = tmp_path / bank.file_name(0)
  pq.write_table(pa.table({'a': [1]}), path)
  with pytest.raises(ValueError, match='version 1 in .*, got none'):
    bank.read(path)


def test_a_folder_without_a_bank_is_named(tmp_path):
  with pytest.raises(ValueError, match='found none'):
    bank.read(tmp_path)


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
  path = tmp_path / bank.file_name(0)
  bank.write(path, [rollout()])
  with pytest.raises((pa.ArrowInvalid, pa.ArrowTypeError)):
    bank.write(path, [rollout(reward='high')])
  assert os.listdir(tmp_path) == ['00000000.parquet']
  assert bank.read(path).num_rows == 1
