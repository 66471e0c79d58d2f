"""Whether a config fits the devices there are."""
import pytest

from configs import tiny
from rlclip import assembly, config, machine_checks, train


def experiment(**changes):
  c = tiny.get_config()  # 8 prompts of 4 completions, 2 mini-batches
  c.warm_start.num_steps = 0
  c.update_from_flattened_dict(
      {key.replace('__', '.'): value for key, value in changes.items()})
  return config.resolve(c)


@pytest.mark.parametrize('num_shards', [1, 2, 4, 8, 16])
def test_rows_that_devices_share_evenly_pass(num_shards):
  machine_checks.check_rows(experiment(), num_shards)  # 16 at once


@pytest.mark.parametrize('num_shards, changes, expected', [
    # 4 prompts at once; 3 devices take 3 or 6, and 16 rows take 1 or 2.
    (3, {}, 'got 4 prompts of 4 completions. Make it 3 or 6, or data x fsdp 1 '
     'or 2 with tensor'),
    # 1 prompt of 4 at once; 8 devices take 2.
    (8, dict(learner__num_micro_batches=4), 'Make it 2, or data x fsdp 1 or 2 '
     'or 4 with tensor'),
    (32, {}, 'Make it 8, or data x fsdp 1 or 2 or 4 or 8 or 16 with tensor'),
    (8, dict(warm_start__num_steps=1, warm_start__batch_size=12),
     'config.warm_start.batch_size must give rows that the 8 parts')])
def test_rows_that_they_cannot_are_refused(num_shards, changes, expected):
  with pytest.raises(ValueError) as error:
    machine_checks.check_rows(experiment(**changes), num_shards)
  assert expected in str(error.value)


def test_what_is_not_trained_is_not_checked():
  machine_checks.check_rows(experiment(num_steps=0), 7)


def test_a_run_is_refused_before_any_work(tmp_path):
  e = experiment(rollout__num_prompts=6, rollout__group_size=2)
  with pytest.raises(ValueError, match='Make it 4, or data x fsdp 1 or 2 or 3'):
    train.train(e, tmp_path)  # 6 rows at once on 8 devices
  assert not (tmp_path / 'checkpoints').exists()


def test_settings_of_several_processes_are_refused_in_one():
  with pytest.raises(ValueError, match='must be empty in a program that is'):
    assembly.build(experiment(distributed__coordinator='auto'))
