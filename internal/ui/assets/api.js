// Questions to the program that served this page. The token is behind the # of the address, which a
// browser never sends. It is kept for this tab alone.

const key = 'sluice-token';

export function takeToken() {
  const found = /(?:^#|&)token=([^&]*)/.exec(location.hash);
  if (!found) return;
  sessionStorage.setItem(key, decodeURIComponent(found[1]));
  history.replaceState(null, '', location.pathname + '#/map');
}

function headers(more = {}) {
  const token = sessionStorage.getItem(key);
  return token ? { Authorization: `Bearer ${token}`, ...more } : more;
}

export class Refused extends Error {}

async function checked(response) {
  if (response.ok) return response;
  const text = (await response.text()).trim() || response.statusText;
  throw response.status === 401 ? new Refused(text) : new Error(text);
}

async function ask(path, options) {
  let response;
  try {
    response = await fetch('api/' + path, { cache: 'no-store', credentials: 'omit', ...options });
  } catch (err) {
    if (err.name === 'AbortError') throw err;
    throw new Error('The program that served this page does not answer. Has it ended?');
  }
  return checked(response);
}

export function query(values) {
  const q = new URLSearchParams();
  for (const [k, v] of Object.entries(values)) if (v !== '' && v !== null && v !== undefined && v !== false) q.set(k, v);
  const text = q.toString();
  return text ? '?' + text : '';
}

export async function get(path, signal) {
  return (await ask(path, { headers: headers(), signal })).json();
}

export async function post(path, body, signal) {
  return (await ask(path, { method: 'POST', headers: headers({ 'Content-Type': 'application/json' }), body: JSON.stringify(body), signal })).json();
}

// events reads server-sent events until the signal aborts or the stream ends. An EventSource could
// not send the token.
export async function events(path, signal, opened, each) {
  const response = await ask(path, { headers: headers({ Accept: 'text/event-stream' }), signal });
  opened();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ''; ;) {
    const { done, value } = await reader.read();
    if (done) return;
    rest += value;
    const parts = rest.split('\n\n');
    rest = parts.pop();
    for (const part of parts) {
      const data = part.split('\n').filter((l) => l.startsWith('data: ')).map((l) => l.slice(6)).join('\n');
      if (data) each(JSON.parse(data));
    }
  }
}
