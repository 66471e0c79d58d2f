"""What every sampler must do. A new one joins by a line in SAMPLERS."""
import jax
import numpy as np
import pytest

from rlclip.models import config as config_lib
from rlclip.models import scoring, transformer
from rlclip.sampler import engine, scripted
from rlclip.types import Request, SamplingSpec

VOCAB, STOPS = 32, (3, 7)
CONFIG = config_lib.ModelConfig(
    'llama', VOCAB, 16, 2, 2, 1, 8, 32, initializer_range=0.5)


def make_engine(**options):
  sampler = engine.Engine(CONFIG, **{**dict(
      seed=5, num_slots=4, max_prompt=24, max_tokens=12, steps_per_round=4),
      **options})
  params = transformer.make(CONFIG).init(jax.random.key(0))
  return sampler, params


def make_scripted():
  # A fixed walk through the vocabulary that starts where the request says.
  walk = lambda request: [
      (request.id * 5 + len(request.prompt) + i) % VOCAB for i in range(40)]
  return scripted.Scripted(walk, log_prob=-1.0), {}


SAMPLERS = {'engine': make_engine, 'scripted': make_scripted}


@pytest.fixture(params=SAMPLERS, scope='class')
def sampler(request):
  made, params = SAMPLERS[request.param]()
  made.load_weights(params, version=3)
  return made


def requests_of(num_prompts=5, group=3, max_tokens=12, stops=STOPS,
                temperature=1.0):
  rng = np.random.default_rng(0)
  prompts = [rng.integers(0, VOCAB, n) for n in range(1, 4 * num_prompts, 4)]
  spec = SamplingSpec(max_tokens, stops, temperature)
  return [Request(group * p + g, prompt, spec)
          for p, prompt in enumerate(prompts) for g in range(group)]


def learners_logps(params, requests, completions, temperature, config=CONFIG):
  """The learner's log-probs of completions of requests_of(), one a row.

  In float64 (transformers) these are up to 1.5e-5 away from both the engine's
  and the learner's: CONFIG's large weights make large logits.
  """
  pad = lambda rows, size: np.stack(
      [np.pad(row, (0, size - len(row))) for row in rows])
  model = transformer.make(config)
  stats = jax.jit(lambda *texts: scoring.score(
      model, params, scoring.Texts(*texts), temperature=temperature,
      chunk=64))(
          pad([r.prompt for r in requests], 24),
          np.array([len(r.prompt) for r in requests]),
          pad([c.tokens for c in completions], 12))
  return [logps[:len(c.tokens)] for c, logps in
          zip(completions, np.asarray(stats.logps), strict=True)]


class TestEverySampler:

  def test_there_is_one_completion_a_request_in_their_order(self, sampler):
    requests = requests_of()
    forward = sampler.generate(requests)
    backward = sampler.generate(requests[::-1])
    assert len(forward) == len(requests)
    for a, b in zip(forward, backward[::-1], strict=True):
      np.testing.assert_array_equal(a.tokens, b.tokens)

  def test_it_stops_on_any_stop_id_and_keeps_that_token(self, sampler):
    completions = sampler.generate(requests_of())
    stopped = [c for c in completions if c.finish == 'stop']
    assert {int(c.tokens[-1]) for c in stopped} == set(STOPS)
    for c in completions:
      assert (c.tokens[-1] in STOPS) == (c.finish == 'stop')
      assert not np.isin(c.tokens[:-1], STOPS).any()

  def test_a_row_that_ends_at_its_limit_is_length_unless_it_stopped(
      self, sampler):
    completions = sampler.generate(requests_of(max_tokens=2))
    assert max(len(c.tokens) for c in completions) == 2
    for c in completions:
      ended = c.tokens[-1] in STOPS
      assert c.finish == ('stop' if ended else 'length')
      assert ended or len(c.tokens) == 2

  def test_without_stop_ids_every_row_runs_to_its_limit(self, sampler):
    completions = sampler.generate(requests_of(stops=()))
    assert [len(c.tokens) for c in completions] == [12] * 15
    assert {c.finish for c in completions} == {'length'}

  def test_a_completion_does_not_depend_on_its_neighbors(self, sampler):
    requests = requests_of()
    together = sampler.generate(requests)
    for index in (0, 7, 14):
      alone, = sampler.generate([requests[index]])
      np.testing.assert_array_equal(alone.tokens, together[index].tokens)

  def test_there_is_one_log_prob_a_token_none_positive(self, sampler):
    for c in sampler.generate(requests_of()):
      assert c.tokens.dtype == np.int32 and c.logps.dtype == np.float32
      assert c.tokens.shape == c.logps.shape
      assert (c.logps <= 0).all()

  def test_the_version_is_that_of_the_weights(self, sampler):
    assert {c.version for c in sampler.generate(requests_of())} == {3}

  def test_prompts_are_left_as_they_were(self, sampler):
    requests = requests_of()
    before = [r.prompt.copy() for r in requests]
    sampler.generate(requests)
    for request, prompt in zip(requests, before, strict=True):
      np.testing.assert_array_equal(request.prompt, prompt)

  def test_no_requests_give_no_completions(self, sampler):
    assert sampler.generate([]) == []
