"""The in-process engine: exact log-probs, greedy, weights, refusals."""
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlclip import partitioning
from rlclip.models import scoring, transformer
from rlclip.sampler import engine
from rlclip.types import Request, SamplingSpec
from tests.sampler import contract_test

CONFIG, VOCAB = contract_test.CONFIG, contract_test.VOCAB
STOPS = contract_test.STOPS


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
  expected = contract_test.learners_logps(
      params, requests, completions, temperature)
  for c, logps in zip(completions, expected, strict=True):
    np.testing.assert_allclose(c.logps, logps, atol=1e-4)


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
  serve(19)
  serve(24)
  assert sampler.num_compilations == before


@pytest.mark.parametrize('rounds_ahead', [0, 1])
def test_after_a_warm_up_no_length_compiles_anything(loaded, rounds_ahead):
  _, params = loaded
  sampler, _ = contract_test.make_engine(
      max_prompt=600, max_tokens=100, rounds_ahead=rounds_ahead)
  sampler.load_weights(params, 0)
  rng = np.random.default_rng(0)

  before = sampler.warm_up(group_size=1)
  for _ in range(5):
    sampler.generate([
        Request(i, rng.integers(0, VOCAB, rng.integers(1, 601)),
                SamplingSpec(int(rng.integers(1, 101)), STOPS))
        for i in range(13)])
  assert sampler.num_compilations == before
  assert before < 20


def test_a_prompt_in_chunks_is_a_prompt_in_one_piece():
  """Behavior log-probs after 700 tokens are those of one forward pass."""
  sampler, params = contract_test.make_engine(max_prompt=700)
  sampler.load_weights(params, 0)
  prompt = np.random.default_rng(1).integers(0, VOCAB, 700)
  completion, = sampler.generate([Request(0, prompt, SamplingSpec(12, ()))])
  model = transformer.make(CONFIG)
  stats = scoring.score(
      model, params, scoring.Texts(prompt[None], np.array([700]),
                                   completion.tokens[None]),
      temperature=1.0, chunk=64)
  np.testing.assert_allclose(completion.logps, stats.logps[0], atol=1e-5)


def test_results_do_not_depend_on_how_far_the_host_is_behind(loaded):
  _, params = loaded
  requests = contract_test.requests_of(num_prompts=6, group=5)
  results = []
  for ahead in (0, 1, 2):
    sampler, _ = contract_test.make_engine(rounds_ahead=ahead)
    sampler.load_weights(params, 0)
    results.append(sampler.generate(requests))
  for a, b in zip(results[0] * 2, results[1] + results[2], strict=True):
    np.testing.assert_array_equal(a.tokens, b.tokens)
    np.testing.assert_array_equal(a.logps, b.logps)
    assert a.finish == b.finish


def test_a_group_costs_one_prompts_cache(loaded):
  """16 samples of 2,048 prompt tokens: their keys lie there once."""
  _, params = loaded
  sampler = engine.Engine(
      CONFIG, seed=0, num_slots=16, max_prompt=2048, max_tokens=12)
  sampler.load_weights(params, 0)
  prompt = np.random.default_rng(1).integers(0, VOCAB, 2048)
  sampler.generate([Request(i, prompt, SamplingSpec(2, ()))
                    for i in range(16)])
  prefixes = sampler._slots.prefixes
  own = CONFIG.num_kv_heads * CONFIG.head_dim
  assert prefixes.keys[0].size == 2048 * own
  np.testing.assert_array_equal(prefixes.lengths, [2047])
  assert sampler._slots.keys[0].shape[2] == 12


def test_nothing_of_old_weights_is_reused(loaded):
  """The same prompt, known to the cache, is computed anew by new weights."""
  _, params = loaded
  requests = contract_test.requests_of()
  sampler, _ = contract_test.make_engine()
  sampler.load_weights(jax.tree.map(lambda x: -x, params), version=0)
  sampler.generate(requests)
  sampler.load_weights(params, version=1)
  fresh, _ = contract_test.make_engine()
  fresh.load_weights(params, version=1)
  for a, b in zip(
      sampler.generate(requests), fresh.generate(requests), strict=True):
    np.testing.assert_array_equal(a.tokens, b.tokens)
    np.testing.assert_array_equal(a.logps, b.logps)


def test_a_stop_string_ends_a_row_with_the_token_that_completes_it(loaded):
  _, params = loaded
  text = lambda ids: ''.join(f'<{i}>' for i in ids)
  sampler, _ = contract_test.make_engine(decode=text)
  sampler.load_weights(params, 0)
  prompt = np.array([4, 9, 2, 30], np.int32)
  free, = sampler.generate([Request(0, prompt, SamplingSpec(12, ()))])
  # Two tokens in a row, the second one of another round.
  string = text(free.tokens[3:5])
  end = text(free.tokens).index(string)
  count = text(free.tokens[:12])[:end + len(string)].count('<')
  spec = SamplingSpec(12, (), stop_strings=('<99>', string))
  others = [Request(i, prompt[:2], SamplingSpec(12, ())) for i in range(1, 6)]
  cut, *rest = sampler.generate([Request(0, prompt, spec), *others])
  assert cut.finish == 'stop'
  np.testing.assert_array_equal(cut.tokens, free.tokens[:count])
  assert {len(c.tokens) for c in rest} == {12}


def test_a_stop_string_needs_a_tokenizer(loaded):
  spec = SamplingSpec(4, (), stop_strings=('x',))
  with pytest.raises(ValueError, match='no tokenizer'):
    loaded[0].generate([Request(0, np.array([1]), spec)])


def test_no_stop_before_the_least_number_of_tokens(loaded):
  sampler, _ = loaded
  stops = tuple(range(0, 32, 4))
  prompt = np.array([4, 9], np.int32)
  draw = lambda least: sampler.generate([
      Request(i, prompt, SamplingSpec(12, stops, min_tokens=least))
      for i in range(20)])
  assert min(len(c.tokens) for c in draw(0)) == 1
  for c in draw(5):
    assert len(c.tokens) > 5 and not np.isin(c.tokens[:5], stops).any()


def test_pieces_of_a_stream_make_up_the_completions(loaded):
  sampler, _ = loaded
  requests = contract_test.requests_of()
  pieces = list(sampler.stream(requests))
  assert len(pieces) > len(requests)  # in rounds of 4 tokens
  for index, whole in enumerate(sampler.generate(requests)):
    own = [p for p in pieces if p.index == index]
    assert [p.finish is None for p in own[:-1]] == [True] * (len(own) - 1)
    joined = engine.join(own, 0)
    np.testing.assert_array_equal(joined.tokens, whole.tokens)
    assert joined.finish == whole.finish


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
  assert completion.tokens.shape == completion.logps.shape == (0,)


def test_what_is_not_finite_does_not_outlive_its_request():
  """Neither broken weights nor a broken row harm whoever has its slot next."""
  requests = contract_test.requests_of(group=2)
  fresh, params = contract_test.make_engine()
  fresh.load_weights(params, 0)
  expected = fresh.generate(requests)

  sampler, _ = contract_test.make_engine()
  sampler.load_weights(jax.tree.map(lambda x: x * np.nan, params), 0)
  assert {c.finish for c in sampler.generate(requests)} == {'error'}
  sampler.load_weights(params, 1)
  for a, b in zip(expected, sampler.generate(requests), strict=True):
    np.testing.assert_array_equal(a.tokens, b.tokens)
    np.testing.assert_array_equal(a.logps, b.logps)


@pytest.mark.parametrize('rounds_ahead', [0, 1])
def test_a_row_that_is_not_finite_does_not_harm_its_neighbors(rounds_ahead):
  config = dataclasses.replace(CONFIG, tie_embeddings=False)
  params = transformer.make(config).init(jax.random.key(0))
  broken = {**params, 'embedding': params['embedding'].at[VOCAB - 1].set(
      np.nan)}
  spec = SamplingSpec(10, (VOCAB - 1,))
  rng = np.random.default_rng(0)
  good = [Request(i, rng.integers(0, VOCAB - 1, 9), spec) for i in range(12)]
  # In the middle of a prompt, and as its last token.
  bad = [Request(100 + i, np.insert(rng.integers(0, VOCAB - 1, 8),
                                    8 * (i % 2), VOCAB - 1), spec)
         for i in range(6)]
  mixed = [r for i in range(6) for r in (good[2 * i], bad[i], good[2 * i + 1])]

  def serve(weights, requests):
    sampler = engine.Engine(
        config, seed=5, num_slots=4, max_prompt=24, max_tokens=12,
        steps_per_round=4, rounds_ahead=rounds_ahead)
    sampler.load_weights(weights, 0)
    completions = sampler.generate(requests) + sampler.generate(requests)
    return {r.id: c for r, c in zip(requests * 2, completions, strict=True)}

  alone, together = serve(params, good), serve(broken, mixed)
  assert {together[r.id].finish for r in bad} == {'error'}
  for r in good:
    np.testing.assert_array_equal(alone[r.id].tokens, together[r.id].tokens)
    assert together[r.id].finish == alone[r.id].finish


@pytest.mark.parametrize('prompt, spec, message', [
    ([], SamplingSpec(4, ()), 'prompt has 0 tokens'),
    (range(25), SamplingSpec(4, ()), 'prompt has 25 tokens, expected 1 to 24'),
    ([VOCAB], SamplingSpec(4, ()), 'ids outside the vocabulary of 32'),
    ([1], SamplingSpec(13, ()), 'max_tokens is 13, expected 1 to 12'),
    ([1], SamplingSpec(4, (), min_tokens=5), 'min_tokens is 5'),
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
  with pytest.raises(RuntimeError, match='Call load_weights'):
    sampler.generate(contract_test.requests_of())


def test_top_k_one_draws_the_greedy_token(loaded):
  sampler, _ = loaded
  prompt = np.array([4, 9, 2, 30], np.int32)
  draw = lambda spec: sampler.generate([Request(0, prompt, spec)])[0].tokens
  greedy = draw(SamplingSpec(8, (), temperature=0.0))
  np.testing.assert_array_equal(draw(SamplingSpec(8, (), top_k=1)), greedy)
  np.testing.assert_array_equal(draw(SamplingSpec(8, (), top_p=1e-6)), greedy)


@pytest.mark.parametrize('sizes', [(8, 1, 1), (1, 8, 1), (2, 2, 2)])
def test_eight_devices_draw_what_one_draws(sizes):
  """With and without a cut cache: the mesh changes the order of sums only."""
  mesh = partitioning.make(*sizes)
  config = dataclasses.replace(CONFIG, num_heads=4, num_kv_heads=2)
  model = transformer.make(config)
  params = model.init(jax.random.key(0))
  laid = jax.device_put(params, mesh.tree_shardings(model.axes, params))
  requests = contract_test.requests_of(num_prompts=4, group=4)
  results = []
  for weights, constrain in (
      (params, lambda array, axes: array), (laid, mesh.constrain)):
    sampler = engine.Engine(
        config, seed=5, num_slots=8, max_prompt=24, max_tokens=12,
        steps_per_round=4, constrain=constrain)
    sampler.load_weights(weights, 0)
    results.append(sampler.generate(requests))
  for a, b in zip(*results, strict=True):
    np.testing.assert_array_equal(a.tokens, b.tokens)
    np.testing.assert_allclose(a.logps, b.logps, rtol=0, atol=1e-5)
