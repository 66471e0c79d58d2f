"""The reference policy: when it is taken, and what a kill leaves of it."""
import jax
import jax.numpy as jnp
import pytest

from rlclip import checkpoint, reference
from rlclip.types import TrainState

ABSTRACT = {'w': jax.ShapeDtypeStruct(
    (2,), jnp.float32, sharding=jax.sharding.SingleDeviceSharding(
        jax.devices()[0]))}


def params(step):
  return {'w': jnp.full(2, step, jnp.float32)}


def begun(folder, **options):
  made = reference.Reference(folder / 'reference', **options)
  made.begin(params(0))
  return made


def held(made):
  return float(made.params['w'][0])


def follow(made, kls, first=1):
  """[(reference in use, age, average)] of steps with these KLs."""
  seen = []
  for step, kl in enumerate(kls, first):
    before = held(made)
    values = made.follow(step, kl, params(step))
    seen.append((before, values['reference/age'],
                 values['reference/kl_average']))
  return seen


@pytest.mark.parametrize('options, expected', [
    # Never; every second step; and the policy that sampled, as RPG's code.
    ({}, [(0, 0, 1), (0, 1, 1), (0, 2, 1), (0, 3, 1), (0, 4, 1)]),
    ({'every': 2}, [(0, 0, 1), (0, 1, 1), (2, 0, 1), (2, 1, 1), (4, 0, 1)]),
    ({'every': 1}, [(0, 0, 1), (1, 0, 1), (2, 0, 1), (3, 0, 1), (4, 0, 1)]),
])
def test_the_policy_is_taken_every_so_many_steps(tmp_path, options, expected):
  assert follow(begun(tmp_path, **options), [1.0] * 5) == expected


def test_the_policy_is_taken_once_the_average_passes_the_limit(tmp_path):
  # Averages 1, 1.5, 2.25 > 2: taken after step 3; then it begins anew at 2.
  made = begun(tmp_path, max_kl=2.0, kl_decay=0.5)
  assert follow(made, [1.0, 2.0, 3.0, 2.0, 9.0]) == [
      (0, 0, 1), (0, 1, 1.5), (0, 2, 2.25), (3, 0, 2), (3, 1, 5.5)]
  assert held(made) == 5


def test_each_trigger_restarts_the_other(tmp_path):
  # By KL after step 1, so the next by count is after step 4, not 3.
  made = begun(tmp_path, every=3, max_kl=2.0, kl_decay=0.0)
  uses = [use for use, _, _ in follow(made, [3.0, 1.0, 1.0, 1.0, 1.0])]
  assert uses == [0, 1, 1, 1, 4]


def test_the_learner_may_donate_what_was_taken(tmp_path):
  made, policy = begun(tmp_path, every=1), params(1)
  made.follow(1, 0.0, policy)
  policy['w'].delete()
  assert held(made) == 1


def test_a_checkpoint_finds_its_own_reference(tmp_path):
  """Checkpoints 0, 2, 4, .. of a run that takes the policy every 3 steps."""
  made = begun(tmp_path, every=3, kl_decay=0.5)
  saver = checkpoint.Checkpointer(tmp_path / 'checkpoints', keep_last=2)
  noted = {}
  for step in range(11):
    if step:
      made.follow(step, float(step), params(step))
    if step % 2 == 0:
      made.save(saver)
      noted[step] = held(made), made.metadata()
      saver.save(step, TrainState(jnp.int32(step), params(step), {}), {},
                 {'pass@1': float(step == 2)})
  saver.wait()
  # The last two and the best. Of 0, 3, 6 and 9 none needed 3 any more when the
  # last one was saved (beside what was then there, 2, 6 and 8).
  assert saver.steps() == (2, 8, 10)
  folder = tmp_path / 'reference'
  assert {path.name for path in folder.iterdir()} == {'0', '6', '9'}
  for at in (10, 8, 2):  # the newest whole one may be an older one
    again = reference.Reference(folder, every=3, kl_decay=0.5)
    again.restore(ABSTRACT, at, noted[at][1])
    assert (held(again), again.metadata()) == noted[at]
  # Going on from step 2, later references are taken anew.
  assert {path.name for path in folder.iterdir()} == {'0'}
  kls = [float(step) for step in range(3, 7)]
  assert [use for use, _, _ in follow(again, kls, first=3)] == [0, 3, 3, 3]
  assert held(again) == 6
  saver.close()
