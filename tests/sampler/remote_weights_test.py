"""Folders of weights that appear whole, and a probe that tells them apart."""
import os

import jax
import numpy as np
import pytest

from rlclip.models import huggingface, transformer
from rlclip.sampler import remote_weights
from tests.sampler import replay

CONFIG = replay.CONFIG


@pytest.fixture(scope='module')
def params():
  return transformer.make(CONFIG).init(jax.random.key(0))


@pytest.fixture
def publish(tmp_path):
  tokenizer_dir = replay.tokenizer_dir(tmp_path)
  return lambda name, config, params: remote_weights.publish(
      str(tmp_path / 'weights'), name, config, params, dtype='float32',
      tokenizer_dir=tokenizer_dir)


def embedding_of(path):
  return np.asarray(huggingface.load(path)[1]['embedding'])


def test_what_is_published_is_the_model(publish, params):
  path = publish('00000001', CONFIG, params)
  assert os.path.isabs(path)
  np.testing.assert_array_equal(embedding_of(path), params['embedding'])


def test_a_folder_that_cannot_be_finished_leaves_the_one_before(
    publish, params):
  path = publish('00000001', CONFIG, params)

  class Unreadable:
    shape = params['norm']['scale'].shape
    dtype = params['norm']['scale'].dtype

    def __array__(self, *args, **kwargs):
      raise RuntimeError('device lost')

  broken = {**params, 'norm': {'scale': Unreadable()}}
  with pytest.raises(RuntimeError, match='device lost'):
    publish('00000002', CONFIG, broken)
  assert os.listdir(os.path.dirname(path)) == ['00000001']
  np.testing.assert_array_equal(embedding_of(path), params['embedding'])


def test_a_version_that_a_killed_run_wrote_is_replaced(publish, params):
  publish('00000001', CONFIG, params)
  twice = jax.tree.map(lambda x: 2 * x, params)
  path = publish('00000001', CONFIG, twice)
  np.testing.assert_array_equal(embedding_of(path), 2 * params['embedding'])
  assert os.listdir(os.path.dirname(path)) == ['00000001']


def test_only_folders_of_other_versions_are_removed(tmp_path):
  for name in ('00000001', '00000002', '00000003', 'start', 'notes'):
    (tmp_path / name).mkdir()
  remote_weights.keep(str(tmp_path), ['00000002', '00000003'])
  assert sorted(os.listdir(tmp_path)) == [
      '00000002', '00000003', 'notes', 'start']


def test_an_untied_head_computes_the_same(params):
  probe = remote_weights.make_probe(CONFIG.vocab_size, 24)
  config, untied = remote_weights.untied(CONFIG, params)
  np.testing.assert_allclose(
      remote_weights.scorer(config, probe)(untied),
      remote_weights.scorer(CONFIG, probe)(params), atol=1e-5)


def test_weights_to_start_with_give_what_is_said_of_them():
  probe = remote_weights.make_probe(CONFIG.vocab_size, 24)
  start, expected = remote_weights.start_weights(CONFIG, probe)
  np.testing.assert_allclose(
      remote_weights.scorer(CONFIG, probe)(start), expected, atol=1e-5)
  # They are no uniform distribution: before and after temperature differ.
  assert (expected.max(-1) - expected.min(-1)).min() > 2


def test_the_probe_scores_the_token_after_each_prompt(params):
  probe = remote_weights.make_probe(CONFIG.vocab_size, 7)
  assert [len(prompt) for prompt in probe.prompts] == [1, 7]
  model = transformer.make(CONFIG)
  hidden, _, _ = jax.jit(model.apply)(
      params, np.array([probe.prompts[1]]), np.arange(7)[None])
  logits = model.unembed(params, hidden[0, -1]) / remote_weights.TEMPERATURE
  np.testing.assert_allclose(
      remote_weights.scorer(CONFIG, probe)(params)[1],
      jax.nn.log_softmax(logits), atol=1e-5)


@pytest.mark.parametrize('moves, answers_move, expected', [
    (0.01, False, True),  # it should show, and does not
    (0.01, True, False),
    (0.0, False, False),  # the same weights once more
    (1e-6, False, False),  # too small to show
])
def test_an_unmoved_answer_of_moved_weights_is_stale(
    moves, answers_move, expected):
  before = np.log(np.array([[0.25, 0.75]]))
  told_before = [{1: float(before[0, 1])}]
  told = [{1: told_before[0][1] + (moves if answers_move else 0.0)}]
  assert remote_weights.is_stale(
      'float32', before + moves, told, before, told_before) == expected


def test_nothing_is_stale_the_first_time():
  assert not remote_weights.is_stale(
      'float32', np.zeros((1, 2)), [{0: 0.0}], None, None)
