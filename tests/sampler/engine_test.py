"""The in-process engine: exact log-probs, greedy, weights, refusals."""
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlclip.models import scoring, transformer
from rlclip.types import Request, SamplingSpec
from tests.sampler import contract_test

CONFIG, VOCAB = contract_test.CONFIG, contract_test.VOCAB


@pytest.fixture(scope='module')
def loaded():
  sampler, params = contract_test.make_engine()
  sampler.load_weights(params, version=0)
  return sampler, params


@pytest.mark.parametrize('temperature', [0.6, 1.0, 1.3])
def test_behavior_log_probs_are_the_learners(loaded, temperature):
  sampler, params = loaded
  requests = contract_test.requests_of(temperature=temperature)
  completions = sampler.generate(requests)
  # One padded batch with one sample a prompt.
  pad = lambda rows, size: np.stack(
      [np.pad(row, (0, size - len(row))) for row in rows])
  model = transformer.make(CONFIG)
  stats = jax.jit(lambda *batch: scoring.score(
      model, params, scoring.Texts(*batch), temperature=temperature,
      chunk=64))(
          pad([r.prompt for r in requests], 24),
          np.array([len(r.prompt) for r in requests]),
          pad([c.tokens for c in completions], 12))
  for c, logps in zip(completions, np.asarray(stats.logps), strict=True):
    np.testing.assert_allclose(c.logps, logps[:len(c.logps)], atol=1e-5)


def test_greedy_takes_the_mode_of_a_plain_forward_pass(loaded):
  sampler, params = loaded
  prompt = np.array([4, 9, 2, 30], np.int32)
  spec = SamplingSpec(8, (), temperature=0.0)
  completion, = sampler.generate([Request(0, prompt, spec)])
  model = transformer.make(CONFIG)

  @jax.jit
  def next_token(tokens, length):  # padding on the right is never attended
    hidden, _, _ = model.apply(params, tokens, jnp.arange(12)[None])
    return model.unembed(params, hidden[0, length - 1]).argmax()

  tokens = np.pad(prompt, (0, 8))[None]
  for length in range(4, 12):
    tokens[0, length] = next_token(tokens, length)
  np.testing.assert_array_equal(completion.tokens, tokens[0, 4:])


def test_more_requests_than_slots_are_served_in_turn(loaded):
  sampler, _ = loaded  # four slots
  requests = contract_test.requests_of(num_prompts=6, group=5)
  assert len(sampler.generate(requests)) == 30


def test_lengths_within_the_same_buckets_compile_nothing_new(loaded):
  sampler, _ = loaded
  spec = SamplingSpec(12, (3,))
  serve = lambda n: sampler.generate([Request(0, np.arange(1, n), spec)])
  serve(20)
  before = sampler.num_compilations
  serve(18)
  serve(24)
  assert sampler.num_compilations == before


def test_loaded_weights_survive_donation_of_the_learners(loaded):
  _, params = loaded
  sampler, _ = contract_test.make_engine()
  own = jax.tree.map(jnp.copy, params)
  sampler.load_weights(own, version=1)
  jax.tree.map(lambda x: x.delete(), own)
  request = contract_test.requests_of()[0]
  completion, = sampler.generate([request])
  assert completion.version == 1


def test_new_weights_change_what_is_drawn(loaded):
  _, params = loaded
  sampler, _ = contract_test.make_engine()
  requests = contract_test.requests_of()
  sampler.load_weights(params, version=0)
  old = sampler.generate(requests)
  sampler.load_weights(jax.tree.map(lambda x: -x, params), version=1)
  new = sampler.generate(requests)
  assert any(not np.array_equal(a.tokens, b.tokens)
             for a, b in zip(old, new, strict=True))


def test_weights_that_are_not_finite_end_a_row_with_an_error(loaded):
  _, params = loaded
  sampler, _ = contract_test.make_engine()
  sampler.load_weights({**params, 'embedding': params['embedding'] * np.nan},
                       version=0)
  completion, = sampler.generate(contract_test.requests_of()[:1])
  assert completion.finish == 'error'


@pytest.mark.parametrize('prompt, spec, message', [
    ([], SamplingSpec(4, ()), 'prompt has 0 tokens'),
    (range(25), SamplingSpec(4, ()), 'prompt has 25 tokens, expected 1 to 24'),
    ([1], SamplingSpec(13, ()), 'max_tokens is 13, expected 1 to 12'),
    ([1], SamplingSpec(4, (), temperature=-1.0), 'temperature is -1.0'),
    ([1], SamplingSpec(4, (VOCAB,)), r'stop ids \[32\] are outside'),
    ([1], SamplingSpec(4, tuple(range(9))), '9 stop ids'),
    ([1], SamplingSpec(4, (), top_p=0.0), 'top_p is 0.0'),
])
def test_what_cannot_be_served_is_refused_by_name(
    loaded, prompt, spec, message):
  sampler, _ = loaded
  with pytest.raises(ValueError, match=f'Request 42: .*{message}'):
    sampler.generate([Request(42, np.array(prompt, np.int32), spec)])


def test_generate_without_weights_says_so():
  sampler, _ = contract_test.make_engine()
  with pytest.raises(RuntimeError, match='before load_weights'):
    sampler.generate(contract_test.requests_of())


def test_top_k_one_draws_the_greedy_token(loaded):
  sampler, _ = loaded
  prompt = np.array([4, 9, 2, 30], np.int32)
  draw = lambda spec: sampler.generate([Request(0, prompt, spec)])[0].tokens
  greedy = draw(SamplingSpec(8, (), temperature=0.0))
  np.testing.assert_array_equal(draw(SamplingSpec(8, (), top_k=1)), greedy)
  np.testing.assert_array_equal(draw(SamplingSpec(8, (), top_p=1e-6)), greedy)
