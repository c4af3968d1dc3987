import { announce, count, h, name, plain, replace, tag } from './dom.js';
import { policyName } from './pods.js';

const kept = 250;

export async function verdictsView(main, { events, query, about, signal }) {
  if (!about.live) {
    main.append(h('h1', {}, 'Verdicts'), h('p.card', {}, 'The state is from files: no agent sees packets.'));
    return;
  }
  const text = (title, hint) => h('label', {}, title, h('input', { type: 'text', placeholder: hint, autocomplete: 'off', spellcheck: 'false' }));
  const action = h('select', {}, [['deny', 'denied'], ['permit', 'permitted'], ['all', 'all']].map(([v, t]) => { const o = h('option', {}, t); o.value = v; return o; }));
  const fields = { namespace: text('Namespace', 'shop'), pod: text('Pod', 'web'), policy: text('Policy', 'shop/web'), peer: text('Address', '10.0.0.0/8') };
  const start = h('button.primary', { type: 'submit' }, 'Follow');
  const stop = h('button', { type: 'button', disabled: true, onclick: () => end('Paused.') }, 'Pause');
  const state = h('p.lead', { role: 'status' }, 'Packets that the kernel drops, as it happens.');
  const rows = h('tbody');
  const place = h('div.card.flush', {}, h('div.scroll', { tabindex: 0, role: 'region', 'aria-label': 'Verdicts' }, h('table.log', {}, h('caption.hidden', {}, 'Verdicts, the newest first'),
    h('thead', {}, h('tr', {}, ['Time', 'Verdict', 'From', 'To', 'Port', 'Why'].map((t) => h('th', { scope: 'col' }, t)))), rows)));
  main.append(h('div.bar', {}, h('h1', {}, 'Verdicts'), state),
    h('form.card', { 'aria-label': 'Filters', onsubmit: (e) => { e.preventDefault(); follow(); } }, h('div.bar', {}, h('label', {}, 'Verdict', action), Object.values(fields), start, stop)), place);
  let running = null;
  let seen = 0;
  let told = 0;
  let queue = [];
  function end(why) {
    running?.abort();
    running = null;
    stop.disabled = true;
    start.textContent = 'Follow';
    state.textContent = plain(why);
  }
  signal.addEventListener('abort', () => running?.abort());
  async function follow() {
    running?.abort();
    const mine = new AbortController();
    running = mine;
    const values = Object.fromEntries(Object.entries(fields).map(([k, l]) => [k, l.querySelector('input').value.trim()]));
    state.textContent = 'Connecting…';
    stop.disabled = false;
    try {
      await events('verdicts' + query({ action: action.value, ...values }), mine.signal, () => { state.textContent = 'Following. The newest comes first.'; }, (v) => {
        if (v.error) { end(v.error); return; }
        seen++;
        queue.push(v);
        if (queue.length === 1) setTimeout(draw, 100);
        if (queue.length > kept) queue.shift();
      });
      if (running === mine) end('The agent has ended the stream.');
    } catch (err) {
      if (running === mine) end(mine.signal.aborted ? 'Paused.' : err.message);
    }
  }
  // draw adds what has come in the last moment, and forgets what is old.
  function draw() {
    rows.prepend(...queue.reverse().slice(0, kept).map(row));
    queue = [];
    while (rows.children.length > kept) rows.lastElementChild.remove();
    if (running) state.textContent = `Following. ${count(seen, 'verdict')}; the newest ${kept} are shown.`;
    if (Date.now() - told > 5000) { told = Date.now(); announce(count(seen, 'verdict')); }
  }
  replace(rows);
  await follow();
}

function row(v) {
  const why = (v.origins ?? []).slice(0, 3).map((o) => h('div', {}, `${policyName(o.policy)} ${o.direction}${o.rule >= 0 ? ` rule ${o.rule}` : ' isolation'}`));
  return h('tr', {}, h('td.time', {}, new Date(v.time).toLocaleTimeString([], { hour12: false }) + '.' + String(new Date(v.time).getMilliseconds()).padStart(3, '0')),
    h('td', {}, tag(v.action, v.action === 'deny' ? 'denied' : 'permitted'), v.missed ? h('div.small.muted', {}, `${v.missed} not reported`) : null),
    h('td', {}, name(v.src.name)), h('td', {}, name(v.dst.name)),
    h('td', {}, v.flow.dstPort ? `${v.flow.dstPort}/${v.flow.protocol}` : v.flow.protocol),
    h('td', {}, why.length ? why : v.match || v.reason || (v.action === 'permit' ? 'no policy isolates the pod' : '')));
}
