"""The sampler's thread: which weights sample what, and how it ends."""
import threading

import jax.numpy as jnp
import pytest

from rlclip import pipeline
from rlclip.rollouts import Collected

_SECONDS = 30


class Recorder:
  """A sampler and its `collect`, which note what they are asked.

  Step n takes `sizes[n - 1]` prompts.
  """

  def __init__(self, sizes=(2,) * 9):
    self.version, self.sizes = None, sizes
    self.sampled = []  # (place, version) a step

  def load(self, params, version):
    assert float(params['w']) == version  # they are those handed in
    self.version = version

  def collect(self, place):
    self.sampled.append((place, self.version))
    size = self.sizes[len(self.sampled) - 1]
    return Collected([(place, self.version)] * size, 0, 0)


def make(recorder, max_staleness, num_steps=9, in_thread=None):
  return pipeline.Pipeline(
      recorder.collect, recorder.load, max_staleness=max_staleness,
      num_steps=num_steps, in_thread=in_thread)


def learn(line, first, last, seen=None):
  """Takes the steps' rollouts and loads each version made of them."""
  for step in range(first, last + 1):
    got = line.take()
    if seen is not None:
      seen.append(got.groups[0])
    params = {'w': jnp.float32(step)}
    line.load(params, step)
    params['w'].delete()  # as the learner's update does


def begun(recorder, max_staleness, **options):
  line = make(recorder, max_staleness, **options)
  line.load({'w': jnp.float32(0)}, 0)
  line.begin(0, 0)
  return line


@pytest.mark.parametrize('in_thread', [False, True])
@pytest.mark.parametrize('lag', [0, 1, 3, 20])
def test_step_n_is_sampled_by_version_n_less_one_less_the_lag(lag, in_thread):
  recorder, seen = Recorder(), []
  line = begun(recorder, lag, in_thread=in_thread)
  learn(line, 1, 9, seen)
  line.close()
  assert [version for _, version in seen] == [
      max(0, n - 1 - lag) for n in range(1, 10)]
  # Nothing twice, and nothing beyond the last step.
  assert recorder.sampled == seen


def test_a_step_begins_where_the_one_before_it_ended():
  recorder, seen = Recorder(sizes=[2, 5, 1, 4]), []
  line = begun(recorder, 2, num_steps=4)
  learn(line, 1, 4, seen)
  line.close()
  assert [place for place, _ in seen] == [0, 2, 7, 8]


@pytest.mark.parametrize('stop', [0, 1, 3, 5])
@pytest.mark.parametrize('lag', [0, 2])
def test_it_goes_on_from_a_checkpoint_alike(lag, stop):
  sizes = [2, 5, 1, 4, 3, 2]
  whole = begun(Recorder(sizes), lag, num_steps=6)
  expected = []
  learn(whole, 1, 6, expected)
  whole.close()
  first, seen = begun(Recorder(sizes), lag, num_steps=6), []
  learn(first, 1, stop, seen)
  pending = first.pending()
  first.close()
  # Only weights older than the checkpoint's are kept.
  assert all(each.groups[0][1] < stop for each in pending)
  assert len(pending) == (min(lag, 6 - stop) if stop else 0)
  recorder = Recorder(sizes[stop + len(pending):])
  second = make(recorder, lag, num_steps=6)
  second.load({'w': jnp.float32(stop)}, stop)
  second.begin(stop, sum(sizes[:stop]), pending)
  learn(second, stop + 1, 6, seen)
  second.close()
  assert seen == expected


def test_evaluation_sees_the_weights_loaded_last():
  recorder = Recorder()
  line = begun(recorder, 2)
  for step in (1, 2, 3):
    learn(line, step, step)
    assert line.run(lambda: recorder.version) == step
  line.close()


def test_the_next_rollouts_are_sampled_while_the_learner_updates():
  recorder = Recorder()
  sampling, updated = threading.Event(), threading.Event()

  def collect(place):
    if recorder.sampled:
      sampling.set()
      assert updated.wait(_SECONDS)
    return recorder.collect(place)

  line = pipeline.Pipeline(
      collect, recorder.load, max_staleness=1, num_steps=2)
  line.load({'w': jnp.float32(0)}, 0)
  line.begin(0, 0)
  line.take()
  # This thread has step 1 in hand, and the other one is within step 2.
  assert sampling.wait(_SECONDS) and len(recorder.sampled) == 1
  updated.set()
  line.take()
  line.close()


def test_no_more_than_the_lag_is_sampled_ahead():
  recorder = Recorder()
  line = begun(recorder, 2)
  for step in (1, 2, 3):
    line.take()
    line.pending()  # waits for all that was handed in
    assert len(recorder.sampled) == step + 2
  line.close()


@pytest.mark.parametrize('in_thread', [False, True])
def test_an_error_of_a_job_is_raised_as_it_is_and_ends_the_line(in_thread):
  recorder = Recorder()

  def collect(place):
    if place == 4:
      raise ValueError('prompt 4 is too long')
    return recorder.collect(place)

  line = pipeline.Pipeline(
      collect, recorder.load, max_staleness=2, num_steps=9,
      in_thread=in_thread)
  line.load({'w': jnp.float32(0)}, 0)
  line.begin(0, 0)
  with pytest.raises(ValueError, match='prompt 4 is too long'):
    learn(line, 1, 9)
  # What was to follow has not begun: it would have had the wrong place.
  with pytest.raises(ValueError, match='prompt 4 is too long'):
    line.run(lambda: recorder.sampled.append('an evaluation'))
  line.close()
  assert [place for place, _ in recorder.sampled] == [0, 2]


def test_weights_that_cannot_be_loaded_sample_nothing():
  recorder = Recorder()

  def load(params, version):
    if version == 1:
      raise OSError('the engine is gone')
    recorder.load(params, version)

  line = pipeline.Pipeline(
      recorder.collect, load, max_staleness=1, num_steps=9)
  line.load({'w': jnp.float32(0)}, 0)
  line.begin(0, 0)
  learn(line, 1, 1)
  with pytest.raises(OSError, match='the engine is gone'):
    learn(line, 2, 9)
  line.close()
  assert [version for _, version in recorder.sampled] == [0, 0]


def test_closing_waits_for_the_job_at_work_and_drops_the_others():
  recorder = Recorder()
  at_work, release = threading.Event(), threading.Event()

  def collect(place):
    at_work.set()
    assert release.wait(_SECONDS)
    return recorder.collect(place)

  before = threading.active_count()
  line = pipeline.Pipeline(
      collect, recorder.load, max_staleness=3, num_steps=9)
  line.load({'w': jnp.float32(0)}, 0)
  line.begin(0, 0)
  taker = threading.Thread(target=line.take)
  taker.start()
  assert at_work.wait(_SECONDS)
  threading.Timer(0.1, release.set).start()
  line.close()
  taker.join(_SECONDS)
  assert len(recorder.sampled) == 1
  assert not [thread for thread in threading.enumerate()
              if thread.name.startswith('sampler')]
  assert threading.active_count() <= before + 1  # the timer may be ending
