"""A small inference server for tests, with vLLM's own answers and our faults.

It stands where a server would, answers what a real vLLM answered when it was
asked the same (recorded/*.json, each with its version), or passes everything on
to a real one that $RLCLIP_VLLM_URL names, and misbehaves when told to.

To test against a real server, or to record one anew (the folder must be the
same, as its path is told to the server):

  python -m tests.sampler.replay /tmp/replay       writes /tmp/replay/start
  VLLM_SERVER_DEV_MODE=1 vllm serve /tmp/replay/start --port 8000 \
    --served-model-name policy --dtype float32 --max-model-len 64 \
    --enforce-eager --logprobs-mode processed_logprobs
  RLCLIP_VLLM_URL=http://127.0.0.1:8000 python -m pytest \
    tests/sampler/remote_test.py                   (RLCLIP_RECORD=1 to record)
"""
import http.server
import json
import os
import pathlib
import sys
import threading
import time
import urllib.error
import urllib.request

from rlclip.models import config as config_lib
from rlclip.sampler import remote_weights

FOLDER = pathlib.Path(__file__).parent / 'recorded'
COMPLETIONS = '/v1/completions'
# Heads of 32: vLLM's attention on a CPU takes none of 16 and fewer.
CONFIG = config_lib.ModelConfig(
    'llama', 32, 16, 2, 2, 1, 32, 64, initializer_range=0.5)
MAX_PROMPT = 24


class Recording:
  """What a real server answered, by the weights it had."""

  def __init__(self, name, upstream=None):
    """Reads recorded/`name`.json; with `upstream`, a URL, asks that instead."""
    self.path, self.upstream = FOLDER / f'{name}.json', upstream
    self.answers = {} if upstream else json.loads(self.path.read_text())
    self._lock = threading.Lock()

  def answer(self, weights, method, path, body):
    """(status, JSON) of what the server with these weights is asked."""
    # The label is new in every run, and so is the place of the folder.
    key = json.dumps([method, path, body], sort_keys=True)
    if not self.upstream:
      found = self.answers['exchanges'].get(weights, {}).get(key)
      return found or (500, {'error': f'not recorded with {weights}: {key}'})
    request = urllib.request.Request(
        self.upstream + path, method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={'content-type': 'application/json'})
    try:
      with urllib.request.urlopen(request) as response:
        found = response.status, json.loads(response.read())
    except urllib.error.HTTPError as error:
      found = error.code, json.loads(error.read())
    with self._lock:
      self.answers.setdefault('exchanges', {}).setdefault(
          weights, {})[key] = found
    return found

  def save(self):
    """Writes what was recorded, with the server's version."""
    _, self.answers['vllm'] = self.answer('any', 'GET', '/version', None)
    del self.answers['exchanges']['any']
    self.path.parent.mkdir(exist_ok=True)
    self.path.write_text(json.dumps(self.answers, sort_keys=True))


class Server:
  """One server: its state, what it was asked, and what it shall do wrong."""

  def __init__(self, recording):
    self.recording = recording
    self.weights, self.label = 'start', 'default'
    self.asked = []  # (path, body)
    self.faults = []  # one is taken by each completion; see FAULTS
    self.always = None  # the fault of every completion
    self.edit = lambda path, status, answer: (status, answer)  # has the last
    self.ignores_reload = False
    self.gate = threading.Event()  # completions wait for it
    self.gate.set()
    self.closing = threading.Event()
    self.most, self.num_waiting = 0, 0  # completions at a time
    self.lock = threading.Lock()
    self.listen(0)

  @property
  def url(self):
    return f'http://127.0.0.1:{self.port}'

  def listen(self, port):
    """Starts; at a port of its own, or at the one it had."""
    handler = type('Handler', (_Handler,), {'server_state': self})
    self._http = _Http(('127.0.0.1', port), handler)
    self.port = self._http.server_address[1]
    threading.Thread(target=self._http.serve_forever, args=(0.02,),
                     daemon=True).start()

  def die(self):
    """Closes every connection, and listens no more."""
    self.closing.set()
    self._http.shutdown()
    self._http.server_close()
    self._http.drop_all()

  def restart(self):
    """Comes up as it was started, with the weights it was started with."""
    self.weights, self.label = 'start', 'default'
    self.closing.clear()
    self.listen(self.port)

  def num_completions(self):
    return sum(path == COMPLETIONS and body['max_tokens'] > 1
               for path, body in self.asked)

  def answer(self, method, path, body):
    with self.lock:
      self.asked.append((path, body))
    if path == '/weight_info':
      return 200, {'weight_version': self.label}
    if path == '/update_weight_version':
      self.label = body['new_version']
      return 200, {'success': True, 'new_version': self.label}
    if path == '/collective_rpc':
      folder = pathlib.Path(body['kwargs']['weights_path'])
      if not (folder / 'config.json').exists():
        return 500, {'error': {'message': 'Repo id must be in the form ...'}}
      if self.ignores_reload:
        return 200, {'results': [None]}
      self.weights = folder.name
      if self.recording.upstream:
        return self.recording.answer('any', method, path, body)
      return 200, {'results': [None]}
    return self.recording.answer(self.weights, method, path, body)

  def enter(self, amount):
    with self.lock:
      self.num_waiting += amount
      self.most = max(self.most, self.num_waiting)


def fewer_logps(answer):
  answer['choices'][0]['logprobs']['token_logprobs'].pop()


def other_model(answer):
  answer['model'] = 'another'


def nan(answer):
  answer['choices'][0]['logprobs']['token_logprobs'][0] = float('nan')


def minus_infinity(answer):  # as vLLM writes it
  answer['choices'][0]['logprobs']['token_logprobs'][0] = -9999.0


def ends_early(answer):
  choice = answer['choices'][0]
  choice['token_ids'] = [0]  # no stop id
  del choice['logprobs']['token_logprobs'][1:]


def no_choice(answer):
  answer['choices'] = []


def outside(answer):
  answer['choices'][0]['token_ids'][0] = CONFIG.vocab_size


# What an answer may have wrong, and what the connection may do.
EDITS = (fewer_logps, other_model, nan, minus_infinity, ends_early, no_choice,
         outside)
FAULTS = {edit.__name__: edit for edit in EDITS} | dict.fromkeys(
    ('status_500', 'hang', 'truncated', 'cut_off', 'no_answer'))


class _Http(http.server.ThreadingHTTPServer):
  daemon_threads = True
  request_queue_size = 128

  def __init__(self, *args):
    self.connections = []
    super().__init__(*args)

  def process_request(self, request, client_address):
    self.connections.append(request)
    super().process_request(request, client_address)

  def drop_all(self):
    for connection in self.connections:
      self.shutdown_request(connection)

  def handle_error(self, request, client_address):
    pass  # connections that a test or its client broke


class _Handler(http.server.BaseHTTPRequestHandler):
  protocol_version = 'HTTP/1.1'
  server_state: Server

  def do_GET(self):
    self._serve('GET')

  def do_POST(self):
    self._serve('POST')

  def log_message(self, *args):
    pass

  def _serve(self, method):
    state, body = self.server_state, None
    if length := int(self.headers.get('content-length') or 0):
      body = json.loads(self.rfile.read(length))
    is_work = self.path == COMPLETIONS and body['max_tokens'] > 1
    if not is_work:
      return self._send(*state.answer(method, self.path, body))
    state.enter(1)
    state.gate.wait(60)
    fault = state.always or (state.faults.pop(0) if state.faults else None)
    status, answer = state.answer(method, self.path, body)
    state.enter(-1)
    if fault == 'status_500':
      status, answer = 500, {'error': {
          'message': 'EngineCore encountered an issue.', 'code': 500}}
    elif fault == 'hang':
      state.closing.wait(60)
    elif FAULTS.get(fault):
      answer = json.loads(json.dumps(answer))
      FAULTS[fault](answer)
    self._send(status, answer, fault)

  def _send(self, status, answer, fault=None):
    status, answer = self.server_state.edit(
        self.path, status, json.loads(json.dumps(answer)))
    data = json.dumps(answer).encode()
    half = data[:len(data) // 2]
    if fault == 'no_answer':
      self.close_connection = True
      return
    self.send_response(status)
    self.send_header('content-type', 'application/json')
    self.send_header(
        'content-length', str(len(half if fault == 'truncated' else data)))
    self.end_headers()
    self.wfile.write(half if fault in ('truncated', 'cut_off') else data)
    self.close_connection = fault == 'cut_off'


def tokenizer_dir(root):
  """A tokenizer of the size of the vocabulary; no text is ever made with it."""
  from rlclip.data import tokenizer
  letters = ''.join(chr(ord('A') + i) for i in range(CONFIG.vocab_size - 2))
  made = tokenizer.character_tokenizer(letters)
  path = os.path.join(root, 'tokenizer')
  made.save(path)
  return path


def in_background(work):
  """Starts it; the returned call waits for what it returns or raises."""
  outcome = {}

  def run():
    try:
      outcome['value'] = work()
    except BaseException as error:
      outcome['error'] = error
      raise

  thread = threading.Thread(target=run, daemon=True)
  thread.start()

  def ended():
    thread.join(60)
    if 'error' in outcome:
      raise outcome['error']
    return outcome['value']

  return ended


def wait_until(holds, seconds=30):
  """Fails where it does not come to hold."""
  end = time.monotonic() + seconds
  while not holds():
    assert time.monotonic() < end
    time.sleep(0.01)


if __name__ == '__main__':  # pragma: no cover
  _probe = remote_weights.make_probe(CONFIG.vocab_size, MAX_PROMPT)
  print(remote_weights.publish(
      sys.argv[1], remote_weights.START, *remote_weights.untied(
          CONFIG, remote_weights.start_weights(CONFIG, _probe)[0]),
      dtype='float32', tokenizer_dir=tokenizer_dir(sys.argv[1])))
