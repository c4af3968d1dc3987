import { busy, count, h, name, plain, replace, table, tag } from './dom.js';
import { namespaceField, podLink } from './map.js';

const page = 100;

export async function podsView(main, context) {
  if (context.rest.length >= 2) { await podView(main, context); return; }
  await listView(main, context);
}

// listView shows pods, a page at a time: the server searches.
async function listView(main, { get, query, about, params, signal }) {
  const asked = { namespace: params.get('namespace') ?? '', text: params.get('text') ?? '', from: 0 };
  const place = h('div.card.flush');
  const search = h('input', { type: 'search', value: asked.text, placeholder: 'name, app=web, 10.1.2.3, node', autocomplete: 'off', spellcheck: 'false', oninput: () => { asked.text = search.value; later(); } });
  main.append(h('div.bar', {}, h('h1', {}, 'Pods'), namespaceField(about, asked.namespace, (ns) => { asked.namespace = ns; asked.from = 0; load(); }), h('label', {}, 'Search', search)), place);
  let timer = 0;
  function later() {
    clearTimeout(timer);
    timer = setTimeout(() => { asked.from = 0; load(); }, 150);
  }
  let turn = 0;
  async function load() {
    const mine = ++turn;
    const found = await get('pods' + query({ ...asked, most: page }), signal);
    if (mine === turn) show(found);
  }
  function show(found) {
    const turn = (by) => () => { asked.from += by; load(); };
    replace(place, table({
      label: 'Pods', rows: found.pods, page, empty: 'No pod matches.',
      columns: [
        { title: 'Pod', cell: (p) => h('a', { href: podLink(p.pod) }, name(p.pod)) },
        { title: 'Workload', class: 'wide', cell: (p) => name(p.workload) },
        { title: 'Addresses', cell: (p) => (p.addresses ?? []).join(', ') || '–' },
        { title: 'Node', class: 'wide', cell: (p) => name(p.node ?? '–') },
        { title: 'Labels', class: 'wide', cell: (p) => labels(p.labels, 4) },
      ],
    }), h('div.pager', {}, h('span', { 'aria-live': 'polite' }, found.total ? `${found.from + 1}–${found.from + found.pods.length} of ${count(found.total, 'pod')}` : 'no pods'),
      h('button', { type: 'button', disabled: found.from === 0, onclick: turn(-page) }, 'Previous'),
      h('button', { type: 'button', disabled: found.from + found.pods.length >= found.total, onclick: turn(page) }, 'Next')));
  }
  replace(place, busy());
  await load();
}

function labels(set, most) {
  const all = Object.entries(set ?? {}).sort();
  return h('div.tags', {}, all.slice(0, most).map(([k, v]) => tag('', `${k}=${v}`)), all.length > most && h('span.muted', {}, `+${all.length - most}`));
}

async function podView(main, { get, query, rest, signal }) {
  const [namespace, pod] = rest;
  const place = h('div', { class: 'stack' }, busy());
  main.append(h('p', {}, h('a', { href: '#/pods' }, '← All pods')), place);
  const p = await get('pod' + query({ namespace, name: pod }), signal);
  document.title = `${plain(p.pod)} · Sluice`;
  main.append(
    h('div.bar', {}, h('h1', {}, name(p.pod)), h('a', { href: '#/explain?' + new URLSearchParams({ dst: p.pod }) }, 'Ask who reaches it'), h('a', { href: '#/explain?' + new URLSearchParams({ src: p.pod }) }, 'Ask what it reaches')),
    p.missing && h('p.note', {}, `The agent did not answer everything: ${plain(p.missing)}`) || '',
    h('div.card', {}, h('dl.facts', {}, fact('Workload', name(p.workload)), fact('Node', name(p.node || '–')), fact('Addresses', (p.addresses ?? []).join(', ') || 'none yet'),
      p.state && fact('State', tag(p.state === 'enforced' ? 'good' : 'warn', p.state)),
      fact('Isolated', (p.isolated ?? []).length ? p.isolated.join(', ') : 'no: everything may reach it, and it may reach everything'), fact('Labels', labels(p.labels, 100))),
    (p.problems ?? []).map((x) => h('p.error', {}, [x.object, x.field, x.reason].filter(Boolean).join(': ')))),
    section(`Policies that select it (${p.policies.length})`, p.policies.flatMap((x) => (x.rules.length ? x.rules.map((r) => ({ policy: x.policy, ...r })) : [{ policy: x.policy }])), [
      { title: 'Policy', cell: (r) => name(policyName(r.policy)) },
      { title: 'Rule', cell: (r) => (r.peers ? `${r.direction} ${r.rule}` : 'no rules: isolates only') },
      ...ruleColumns,
    ], 'No policy selects it.'),
    section(`Rules that name it as a peer (${p.naming.length})`, p.naming, [
      { title: 'Policy', cell: (r) => name(policyName(r.policy)) },
      { title: 'Rule', cell: (r) => `${r.direction} ${r.rule}` },
      ...ruleColumns,
    ], 'No rule names it.'),
    p.installed ? section(`Rules in the dataplane (${p.installed.length})`, p.installed, [
      { title: '#', cell: (r) => r.index },
      { title: 'Dataplane', class: 'wide', cell: (r) => r.renderer },
      { title: 'Rule', cell: (r) => r.meaning || JSON.stringify(r.rule) },
      { title: 'Packets', class: 'number', cell: (r) => r.packets ?? '–' },
      { title: 'From', class: 'wide', cell: (r) => (r.origins ?? []).slice(0, 3).map((o) => h('div', {}, `${policyName(o.policy)} ${o.direction} ${o.rule >= 0 ? o.rule : ''}`)) },
    ], 'Nothing is installed for it on this node.') : '');
  place.remove();
}

export const policyName = (p) => (p.namespace ? `${p.namespace}/${p.name}` : `${p.kind} ${p.name}`);

const ruleColumns = [
  { title: 'Peers', cell: (r) => (r.peers ?? []).map((x) => h('div', {}, x)) },
  { title: 'Ports', cell: (r) => [(r.ports ?? []).map((x) => h('div', {}, x)), r.note && h('div.small.muted', {}, r.note)] },
];

const fact = (title, value) => [h('dt', {}, title), h('dd', {}, value)];

function section(title, rows, columns, empty) {
  return h('section.card.flush', { 'aria-label': title }, table({ caption: title, label: title, rows, columns, empty, page: 50 }));
}
