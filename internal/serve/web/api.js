// Calls of the server. Text that it answers is data: it reaches the page as textContent alone.

/** A Failure is an answer of the server other than success. */
export class Failure extends Error {
  constructor(status, message, param, retryAfter) {
    super(message);
    this.status = status;
    this.param = param;
    this.retryAfter = retryAfter;
  }
}

/** limitOf returns the tokens of the longest text that the server takes of its model; 0: of any length. */
export function limitOf(f) {
  const limits = [f.context, f.beyond_context ? 0 : f.trained_context, f.has_sessions ? f.session_tokens : f.embedding_tokens].filter(Boolean);
  return limits.length ? Math.min(...limits) : 0;
}

// A header carries no other characters.
const isKey = (text) => /^[\x21-\x7e]+$/.test(text);

function readKey() {
  try {
    return sessionStorage.getItem('farfield.key') || '';
  } catch { // site data are blocked
    return '';
  }
}

const stored = readKey();
let key = isKey(stored) ? stored : '';
let asking = null;

// askKey shows the dialog once for all calls that wait for a key.
function askKey(wrong) {
  if (asking) return asking;
  const dialog = document.getElementById('key-dialog');
  const field = document.getElementById('key');
  document.getElementById('key-note').textContent = wrong
    ? 'The server does not know this key.'
    : 'It stays in this tab until the tab is closed.';
  field.value = '';
  asking = new Promise((resolve) => {
    const cancel = document.getElementById('key-cancel');
    const stop = () => dialog.close('');
    const end = () => {
      cancel.removeEventListener('click', stop);
      dialog.removeEventListener('close', end);
      asking = null;
      const typed = field.value.trim();
      if (dialog.returnValue !== 'use') resolve(false);
      else if (!isKey(typed)) resolve(askKey(true));
      else {
        key = typed;
        try {
          sessionStorage.setItem('farfield.key', key);
        } catch { /* the key is known until the page is left */ }
        resolve(true);
      }
    };
    cancel.addEventListener('click', stop);
    dialog.addEventListener('close', end);
    dialog.returnValue = '';
    dialog.showModal();
  });
  return asking;
}

async function failure(answer) {
  let message = '', param = null;
  try {
    const e = (await answer.json()).error;
    message = e.message;
    param = e.param;
  } catch { /* an answer without a body */ }
  const seconds = Number(answer.headers.get('Retry-After')) || 0;
  return new Failure(answer.status, message || `The server answered ${answer.status}.`, param, seconds);
}

async function send(method, path, body, signal) {
  for (;;) {
    const used = key;
    const headers = {};
    if (body !== undefined) headers['Content-Type'] = 'application/json';
    if (used) headers.Authorization = 'Bearer ' + used;
    let answer;
    try {
      answer = await fetch(path, { method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body) });
    } catch (e) {
      if (e.name === 'AbortError') throw e;
      throw new Failure(0, 'The server does not answer. Is it still running?');
    }
    if (answer.ok) return answer;
    if (answer.status === 401 && (used !== key || await askKey(used !== ''))) continue;
    throw await failure(answer);
  }
}

/** call makes a request and returns its JSON, or null where the answer is empty. */
export async function call(method, path, body, signal) {
  const answer = await send(method, path, body, signal);
  return answer.status === 204 ? null : answer.json();
}

/** stream makes a request and gives each event to onEvent, until [DONE]. */
export async function stream(path, body, onEvent, signal) {
  const answer = await send('POST', path, body, signal);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new Failure(0, 'The answer broke off.');
    rest += value;
    let end;
    while ((end = rest.indexOf('\n')) >= 0) {
      const line = rest.slice(0, end).trim();
      rest = rest.slice(end + 1);
      if (!line.startsWith('data:')) continue;
      const data = line.slice(5).trim();
      if (data === '[DONE]') {
        reader.cancel();
        return;
      }
      const event = JSON.parse(data);
      if (event.error) throw new Failure(500, event.error.message, event.error.param);
      onEvent(event);
    }
  }
}
