// The views of the page, by the part of the address behind the #.
import { events, get, post, query, Refused, takeToken } from './api.js';
import { announce, failure, h, plain, replace } from './dom.js';
import { explainView } from './explain.js';
import { mapView } from './map.js';
import { matrixView } from './matrix.js';
import { podsView } from './pods.js';
import { previewView } from './preview.js';
import { statusView } from './status.js';
import { verdictsView } from './verdicts.js';

const views = {
  map: ['Map', mapView], matrix: ['Matrix', matrixView], pods: ['Pods', podsView], explain: ['Explain', explainView],
  verdicts: ['Verdicts', verdictsView], preview: ['Preview', previewView], status: ['Status', statusView],
};

const main = document.getElementById('main');
const source = document.getElementById('source');
const context = { get, post, events, query, about: null };
let leave = new AbortController();

takeToken();

// route returns the view of the address, the rest of its path, and its parameters.
function route() {
  const [path, search] = location.hash.replace(/^#\/?/, '').split('?');
  const [view, ...rest] = path.split('/').map(decodeURIComponent);
  return { view: views[view] ? view : 'map', rest, params: new URLSearchParams(search) };
}

async function show(isFirst) {
  leave.abort();
  leave = new AbortController();
  const { view, rest, params } = route();
  for (const a of document.querySelectorAll('#tabs a')) {
    if (a.getAttribute('href') === '#/' + view) a.setAttribute('aria-current', 'page');
    else a.removeAttribute('aria-current');
  }
  const [title, draw] = views[view];
  document.title = `${title} · Sluice`;
  const { signal } = leave;
  try {
    if (!context.about) await refresh();
    if (signal.aborted) return;
    replace(main);
    await draw(main, { ...context, rest, params, signal });
    if (!isFirst && !main.contains(document.activeElement)) main.focus({ preventScroll: true });
    if (!isFirst) announce(title);
  } catch (err) {
    if (signal.aborted || err.name === 'AbortError') return;
    replace(main, h('h1', {}, title), failure(err),
      err instanceof Refused && h('p.muted', {}, 'sluicectl ui prints the address of this page, with the token behind the #.'));
  }
}

// refresh asks what the state is of. It is asked again as long as the page is seen.
async function refresh() {
  try {
    context.about = await get('about');
    const a = context.about;
    source.textContent = plain(`${a.source} · ${a.pods} pods, ${a.policies} policies`);
    source.className = 'source' + (a.live ? ' live' : '');
  } catch (err) {
    source.textContent = 'not connected';
    source.className = 'source lost';
    throw err;
  }
}

setInterval(() => {
  if (!document.hidden) refresh().then(() => dispatchEvent(new Event('refreshed')), () => {});
}, 30000);
addEventListener('hashchange', () => {
  if (location.hash === '#main') { main.focus(); return; }
  takeToken();
  show(false);
});
document.querySelector('.skip').addEventListener('click', (e) => { e.preventDefault(); main.focus(); });
show(true);
