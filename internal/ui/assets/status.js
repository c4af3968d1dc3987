import { h, name, table, tag } from './dom.js';
import { policyName } from './pods.js';

export async function statusView(main, { get, about, signal }) {
  const s = await get('status', signal);
  main.append(h('div.bar', {}, h('h1', {}, 'Status'), h('p.lead', {}, about.source)));
  if (!s.status) { main.append(h('p.card', {}, s.why)); return; }
  const st = s.status;
  const tile = (value, title) => h('div.tile', {}, h('b', {}, value), h('span', {}, title));
  main.append(h('div.tiles', {}, tile(st.pods, 'pods'), tile(st.local, 'on this node'), tile(st.policies, 'policies'), tile(st.unenforced, 'not enforced in full'), tile(st.revision, 'revision in force'), tile(st.store.following ? 'yes' : 'no', 'follows the store')),
    st.store.error || st.store.incomplete ? h('p.error', {}, st.store.error || st.store.incomplete) : '',
    card('Dataplanes', st.renderers ?? [], [
      { title: 'Dataplane', cell: (r) => r.name },
      { title: 'State', cell: (r) => (r.error || r.dataplane ? tag('bad', 'fails') : tag(r.inSync ? 'good' : 'warn', r.inSync ? 'in sync' : 'behind')) },
      { title: 'Rules', class: 'number', cell: (r) => r.rules },
      { title: 'Applied', class: 'number', cell: (r) => r.applied },
      { title: 'Remarks', cell: (r) => [r.error, r.dataplane, ...(r.foreign ?? []), (r.blocked ?? []).length && `${r.blocked.length} interfaces are blocked`].filter(Boolean).map((t) => h('div', {}, t)) },
    ], 'There is no dataplane.'),
    s.nodesWhy ? h('p.note', {}, s.nodesWhy) : card('Nodes', s.nodes ?? [], [
      { title: 'Node', cell: (n) => name(n.node) },
      { title: 'Enforces the newest state', cell: (n) => tag(n.enforced === 'yes' ? 'good' : 'warn', n.enforced) },
      { title: 'Revision', class: 'number', cell: (n) => n.revision },
      { title: 'Version', class: 'wide', cell: (n) => n.version },
      { title: 'Remarks', cell: (n) => [n.why, ...(n.policies ?? []).slice(0, 5).map((p) => `${policyName(p.policy)}: ${p.why}`)].filter(Boolean).map((t) => h('div', {}, t)) },
    ], 'No node reports.'),
    card('Problems', st.problems ?? [], [
      { title: 'Object', cell: (p) => name(p.object ?? '–') },
      { title: 'Field', class: 'wide', cell: (p) => p.field ?? '' },
      { title: 'Reason', cell: (p) => p.reason },
    ], 'No problems.'));
}

function card(title, rows, columns, empty) {
  return h('section.card.flush', { 'aria-label': title }, table({ caption: title, rows, columns, empty }));
}
