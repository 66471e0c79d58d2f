"""Inference servers as a sampler: exact, and nothing lost whatever they do.

Without a server these tests run against what vLLM 0.32 answered, recorded; with
$RLCLIP_VLLM_URL against that server. tests/sampler/replay.py says how.
"""
import os
import time

import jax
import numpy as np
import pytest

from rlclip.models import transformer
from rlclip.sampler import fleet, remote
from rlclip.sampler.dialects import BadAnswer
from rlclip.sampler.fleet import NoServer, Refused, Unanswered
from tests.sampler import contract_test, replay

CONFIG = replay.CONFIG
SETTINGS = fleet.Settings(
    timeout_s=30.0, connect_timeout_s=5.0, patience_s=30.0, delay_s=0.01)


@pytest.fixture(scope='session')
def params():
  return transformer.make(CONFIG).init(jax.random.key(0))


@pytest.fixture(scope='session')
def recording(tmp_path_factory):
  upstream = os.environ.get('RLCLIP_VLLM_URL')
  made = replay.Recording('vllm', upstream)
  print('against', upstream or f'a recording of vLLM {made.answers["vllm"]}')
  yield made
  if upstream and os.environ.get('RLCLIP_RECORD'):
    made.save()


@pytest.fixture
def make(recording, tmp_path):
  """Makes servers, and samplers of them; all are gone after the test."""
  servers = []

  class Make:

    def server(self):
      servers.append(replay.Server(recording))
      return servers[-1]

    def sampler(self, *some, **changes):
      return remote_of(some, tmp_path, **changes)

  yield Make()
  for server in servers:
    server.gate.set()
    server.die()


def remote_of(servers, folder, model='policy', max_tokens=12, **settings):
  settings = {**vars(SETTINGS), **settings}
  if servers[0].recording.upstream:  # it takes its time
    settings['timeout_s'] = max(15.0, settings['timeout_s'])
    settings['patience_s'] *= 10
  return remote.Remote(
      CONFIG, remote.Served(
          tuple(s.url for s in servers), 'vllm', model, str(folder / 'weights'),
          replay.tokenizer_dir(folder)),
      seed=5, max_prompt=replay.MAX_PROMPT, max_tokens=max_tokens,
      settings=fleet.Settings(**settings))


def tokens_of(completions):
  return [c.tokens.tolist() for c in completions]


@pytest.fixture(scope='session')
def undisturbed(recording, params, tmp_path_factory):
  """What a server without faults draws."""
  server = replay.Server(recording)
  sampler = remote_of([server], tmp_path_factory.mktemp('undisturbed'))
  sampler.load_weights(params, version=3)
  completions = sampler.generate(contract_test.requests_of())
  server.die()
  return completions


@pytest.fixture(scope='class')
def sampler(recording, params, tmp_path_factory):
  server = replay.Server(recording)
  made = remote_of([server], tmp_path_factory.mktemp('contract'))
  made.connect()
  made.load_weights(params, version=3)
  yield made
  server.die()


class TestContract(contract_test.TestEverySampler):
  """What every sampler must do."""


# --------------------------------------------------------------- exactness


@pytest.mark.parametrize('temperature', [0.6, 1.0, 1.3])
def test_behavior_log_probs_are_the_learners(make, params, temperature):
  sampler = make.sampler(make.server())
  sampler.load_weights(params, version=3)
  requests = contract_test.requests_of(temperature=temperature)
  completions = sampler.generate(requests)
  expected = contract_test.learners_logps(
      params, requests, completions, temperature, CONFIG)
  for c, logps in zip(completions, expected, strict=True):
    np.testing.assert_allclose(c.logps, logps, atol=1e-4)


def test_every_request_has_a_seed_of_its_own():
  seeds = [remote.request_seed(seed, id) for seed in (-1, 0, 1)
           for id in range(1000)]
  assert len(set(seeds)) == 3000
  assert 0 <= min(seeds) and max(seeds) < 2**63
  assert remote.request_seed(0, 7) == seeds[1007]


def test_a_group_does_not_say_the_same_thing(undisturbed):
  groups = [tokens_of(undisturbed[i:i + 3]) for i in range(0, 15, 3)]
  assert all(group[0] != group[1] != group[2] for group in groups)


# ------------------------------------------------------------------ faults


@pytest.mark.parametrize('fault', replay.FAULTS)
def test_a_bad_answer_is_asked_for_again(make, params, undisturbed, fault):
  server = make.server()
  # Short only where it is waited for: a busy machine is slow as well.
  sampler = make.sampler(server, timeout_s=2.0 if fault == 'hang' else 30.0)
  sampler.load_weights(params, version=3)
  server.faults = [fault, None, fault]
  completions = sampler.generate(contract_test.requests_of())
  assert tokens_of(completions) == tokens_of(undisturbed)
  assert sum(sampler.faults.values()) == 2 or (
      fault == 'hang' and sum(sampler.faults.values()) > 2)


@pytest.mark.parametrize('fault, error, message', [
    ('status_500', Unanswered, 'HTTP 500 .*EngineCore encountered'),
    ('hang', Unanswered, 'no answer in .* s'),
    ('truncated', BadAnswer, 'Expected JSON of POST'),
    ('cut_off', Unanswered, 'RemoteProtocolError'),
    ('no_answer', Unanswered, 'RemoteProtocolError'),
    ('fewer_logps', BadAnswer, 'as many token ids as log-probs, got'),
    ('other_model', BadAnswer, "of 'policy', got one of 'another'"),
    ('nan', BadAnswer, 'finite log-probs of 0 at most, got .nan'),
    ('minus_infinity', BadAnswer, 'finite log-probs .*-9999.0'),
    ('ends_early', BadAnswer, r'a stop token of \(3, 7\) at the end'),
    ('no_choice', BadAnswer, 'one choice with token ids and log-probs'),
    ('outside', BadAnswer, 'token ids below 32, got 32'),
])
def test_a_server_that_never_answers_well_ends_the_run_by_name(
    make, params, fault, error, message):
  server = make.server()
  sampler = make.sampler(
      server, timeout_s=1.0 if fault == 'hang' else 30.0, retries=2)
  sampler.load_weights(params, version=3)
  server.always = fault
  with pytest.raises(error, match=message) as raised:
    sampler.generate(contract_test.requests_of()[:2])
  assert 'no good answer in 3 tries' in str(raised.value)
  assert server.url in str(raised.value)


def test_a_server_that_dies_amid_a_batch_loses_nothing(
    make, params, undisturbed):
  first, second = make.server(), make.server()
  sampler = make.sampler(first, second, in_flight=3)
  sampler.load_weights(params, version=3)
  for server in (first, second):
    server.gate.clear()
  ended = replay.in_background(
      lambda: sampler.generate(contract_test.requests_of()))
  replay.wait_until(lambda: first.num_waiting == second.num_waiting == 3)
  first.die()
  second.gate.set()
  assert tokens_of(ended()) == tokens_of(undisturbed)
  assert second.num_completions() == 15


def test_one_that_comes_back_is_told_the_newest_weights_before_it_works(
    make, params, undisturbed):
  server = make.server()
  sampler = make.sampler(server, in_flight=4)
  sampler.load_weights(params, version=3)
  server.gate.clear()
  ended = replay.in_background(
      lambda: sampler.generate(contract_test.requests_of()))
  replay.wait_until(lambda: server.num_waiting == 4)
  server.die()
  server.gate.set()
  replay.wait_until(lambda: server.num_waiting == 0)  # none of them was heard
  server.asked.clear()
  server.restart()
  assert tokens_of(ended()) == tokens_of(undisturbed)
  paths = [path for path, body in server.asked
           if path != replay.COMPLETIONS or body['max_tokens'] > 1]
  assert paths.index('/collective_rpc') < paths.index(replay.COMPLETIONS)
  assert server.weights == '00000003'


def test_one_that_restarted_between_two_calls_is_told_its_weights_again(
    make, params, undisturbed):
  server = make.server()
  sampler = make.sampler(server)
  sampler.load_weights(params, version=3)
  server.die()
  server.restart()
  completions = sampler.generate(contract_test.requests_of())
  assert tokens_of(completions) == tokens_of(undisturbed)


def test_what_came_from_one_that_restarted_unseen_is_asked_again(
    make, params, undisturbed):
  server = make.server()
  sampler = make.sampler(server)
  sampler.load_weights(params, version=3)
  server.gate.clear()
  ended = replay.in_background(
      lambda: sampler.generate(contract_test.requests_of()))
  replay.wait_until(lambda: server.num_waiting == 15)
  server.label = 'default'  # and no connection broke
  server.gate.set()
  assert tokens_of(ended()) == tokens_of(undisturbed)
  assert server.num_completions() == 30


def test_the_least_loaded_is_asked_first(make, params):
  slow, fast = make.server(), make.server()
  sampler = make.sampler(slow, fast, in_flight=3)
  sampler.load_weights(params, version=3)
  slow.gate.clear()
  ended = replay.in_background(
      lambda: sampler.generate(contract_test.requests_of()))
  replay.wait_until(lambda: fast.num_completions() == 12)
  slow.gate.set()
  ended()
  assert (slow.most, fast.most <= 3) == (3, True)
  assert slow.num_completions() == 3


def test_with_no_server_left_the_run_ends_saying_which(make, params):
  server = make.server()
  sampler = make.sampler(server, patience_s=0.3)
  sampler.load_weights(params, version=3)
  server.die()
  with pytest.raises(NoServer, match=f'{server.url}: Unanswered: .*Connect'):
    sampler.generate(contract_test.requests_of())


# ----------------------------------------------------------------- weights


def test_weights_that_were_not_loaded_are_noticed(make, params):
  server = make.server()
  sampler = make.sampler(server, patience_s=0.3)
  sampler.connect()
  server.ignores_reload = True
  with pytest.raises(NoServer, match='WrongWeights: .*nats from those of wei'):
    sampler.load_weights(params, version=3)


def test_small_updates_that_were_not_loaded_are_noticed(make, params):
  server = make.server()
  sampler = make.sampler(server, patience_s=0.3)
  sampler.load_weights(params, version=3)
  server.ignores_reload = True
  nearly = jax.tree.map(lambda x: x * (1 + 3e-5), params)
  with pytest.raises(NoServer, match='WrongWeights: .*to the last bit'):
    sampler.load_weights(nearly, version=4)


def test_a_folder_that_servers_do_not_see_is_refused(make):
  server = make.server()
  server.edit = lambda path, status, answer: (
      (500, {'error': 'no such folder'}) if path == '/collective_rpc'
      else (status, answer))
  sampler = make.sampler(server)
  with pytest.raises(remote.NotLoaded, match='no such .*Does it see that path'):
    sampler.connect()


def test_weights_that_are_not_finite_are_kept_from_servers(make, params):
  server = make.server()
  sampler = make.sampler(server)
  broken = {**params, 'embedding': params['embedding'] * np.nan}
  with pytest.raises(ValueError, match='version 9 give log-probs that are not'):
    sampler.load_weights(broken, version=9)
  assert not server.asked


# ----------------------------------------------------------------- refusals


def entry(**changes):
  """Edits what /v1/models tells of the first model."""
  def edit(path, status, answer):
    if path == '/v1/models':
      answer['data'][0] |= changes
    return status, answer
  return edit


def raw_log_probs(path, status, answer):
  """As a server without --logprobs-mode tells them: before temperature."""
  if path == replay.COMPLETIONS and 'choices' in answer:
    for likeliest in answer['choices'][0]['logprobs']['top_logprobs']:
      logps = np.array(list(likeliest.values())) * 0.7
      logps -= np.log(np.exp(logps).sum())
      likeliest |= zip(likeliest, logps.tolist())
  return status, answer


def takes_any_token(path, status, answer):
  is_refusal = 'out of vocabulary' in str(answer)
  return (200, {'choices': []}) if is_refusal else (status, answer)


@pytest.mark.parametrize('edit, error, message', [
    (entry(id='other'), Refused, r"serves \['other'\], expected 'policy'"),
    (entry(max_model_len=35), Refused, 'takes 35 tokens .*expected 36 or more'),
    (raw_log_probs, remote.WrongWeights, 'after temperature and filters'),
    (takes_any_token, Refused, 'takes token 32, expected a vocabulary of 32'),
])
def test_a_server_that_cannot_serve_is_refused_before_any_work(
    make, edit, error, message):
  server = make.server()
  server.edit = edit
  begun = time.monotonic()
  with pytest.raises(error, match=message):
    make.sampler(server).connect()
  assert time.monotonic() - begun < SETTINGS.patience_s
  assert not server.num_completions()


def test_another_architecture_is_refused_by_its_config(make, tmp_path):
  other = tmp_path / 'other'
  other.mkdir()
  text = '{"model_type": "llama", "vocab_size": 32, "hidden_size": 64, %s}' % (
      '"intermediate_size": 8, "num_hidden_layers": 1, "rms_norm_eps": 1e-6, '
      '"num_attention_heads": 2, "max_position_embeddings": 64')
  (other / 'config.json').write_text(text)
  server = make.server()
  server.edit = entry(root=str(other))
  with pytest.raises(Refused, match='hidden_size 64, expected 16'):
    make.sampler(server).connect()


@pytest.mark.parametrize('prompt, changes, message', [
    ([], {}, 'prompt has 0 tokens'),
    (range(25), {}, 'prompt has 25 tokens, expected 1 to 24'),
    ([1], {'max_tokens': 13}, 'max_tokens is 13, expected 1 to 12'),
    ([1], {'temperature': -1.0}, 'temperature is -1.0'),
    ([1], {'stops': (32,)}, r'stop ids \[32\] are outside'),
    ([33], {}, 'its prompt has ids outside'),
])
def test_what_cannot_be_served_is_refused_by_name(
    make, params, prompt, changes, message):
  server = make.server()
  sampler = make.sampler(server)
  sampler.load_weights(params, version=3)
  request = contract_test.requests_of(**changes)[0]
  request = type(request)(42, np.array(prompt, np.int32), request.spec)
  with pytest.raises(ValueError, match=f'Request 42: .*{message}'):
    sampler.generate([request])


def test_generate_without_weights_says_so(make):
  sampler = make.sampler(make.server())
  sampler.connect()
  with pytest.raises(RuntimeError, match='before load_weights'):
    sampler.generate(contract_test.requests_of())
