import { announce, busy, count, h, name, plain, replace, table, tag } from './dom.js';
import { drawing, edgeColumns, edgesOf, fromOf, legend, toOf } from './drawing.js';

// namespaces makes a field in which one is chosen.
export function namespaceField(about, chosen, change) {
  const select = h('select', { onchange: () => change(select.value) },
    h('option', { value: '' }, 'All namespaces'), about.namespaces.map((n) => option(n)));
  select.value = about.namespaces.includes(chosen) ? chosen : '';
  return h('label', {}, 'Namespace', select);
}

function option(text) {
  const o = h('option', {}, text);
  o.value = text; // as it is, also where it is shown escaped
  return o;
}

export async function mapView(main, { get, query, about, params, signal }) {
  let namespace = params.get('namespace') ?? '';
  let denied = false;
  const lead = h('p.lead', { 'aria-live': 'polite' });
  const place = h('div.card.flush');
  const side = h('aside.card.side', { 'aria-label': 'Details' });
  const same = h('div.card.flush');
  let view = null;
  const zoom = (how) => () => view?.[how]();
  const box = h('input', { type: 'checkbox', onchange: () => { denied = box.checked; load(); } });
  main.append(
    h('div.bar', {}, h('h1', {}, 'Who can talk to whom'),
      namespaceField(about, namespace, (ns) => { namespace = ns; load(); }),
      h('label.check', {}, box, 'Show what is denied'),
      h('div.buttons', { role: 'group', 'aria-label': 'Size of the map' },
        h('button', { type: 'button', 'aria-label': 'Smaller', onclick: zoom('out') }, '−'),
        h('button', { type: 'button', 'aria-label': 'Larger', onclick: zoom('in') }, '+'),
        h('button', { type: 'button', onclick: zoom('fit') }, 'Fit')), lead),
    h('div.mapview', {}, place, side), same);
  let chosen = {};
  let drawn = '';
  async function load() {
    replace(place, busy('Drawing the map…'));
    drawn = '';
    await update();
  }
  // update draws the map again if it has changed, and while nothing is chosen on it.
  async function update() {
    const asked = query({ namespace, denied });
    const g = await get('graph' + asked, signal);
    const text = JSON.stringify(g);
    if (asked !== query({ namespace, denied }) || text === drawn) return;
    drawn = text;
    chosen = {};
    show(g);
  }
  addEventListener('refreshed', () => {
    if (chosen.node === undefined && chosen.edge === undefined && !place.contains(document.activeElement)) update().catch(() => {}); // the header says that there is no answer
  }, { signal });
  function show(g) {
    lead.textContent = `${summary(g)}. Verdicts of the specification, on the ports that pods declare or policies name.`;
    const d = drawing(g, { choose: (now) => { chosen = now; d.mark(chosen); details(side, g, chosen, openNamespace); } });
    view = d.view;
    replace(place, (g.notes ?? []).map((n) => h('p.note', {}, n)), g.nodes.length ? [d.stage, legend(g)] : h('p.empty', {}, 'There are no pods with addresses yet.'));
    details(side, g, {}, openNamespace);
    replace(same, h('details', {}, h('summary', {}, 'The same as a table'),
      table({ label: 'Edges of the map', columns: edgeColumns(g), rows: g.edges, empty: 'Nothing can talk to anything.' })));
  }
  function openNamespace(ns) {
    namespace = ns;
    main.querySelector('select').value = ns;
    load();
  }
  await load();
}

export function summary(g) {
  const of = (kind) => g.nodes.filter((n) => n.kind === kind).length;
  const workloads = of('workload');
  return [count(of('namespace'), 'namespace'), workloads && count(workloads, 'workload'), count(g.edges.length, 'edge')].filter(Boolean).join(', ');
}

// details shows what was chosen on a map: a node with what it reaches, or an edge.
function details(side, g, chosen, openNamespace) {
  if (chosen.edge !== undefined) { replace(side, edgeDetails(g, g.edges[chosen.edge])); return; }
  if (chosen.node === undefined) {
    replace(side, h('h2', {}, 'Choose a node or an edge'),
      h('p.muted', {}, 'A click shows what it reaches, what reaches it, and on which ports. With the keyboard: Tab to the map, arrow keys, Enter; Escape ends it.'),
      h('p.muted', {}, 'An edge of a whole namespace stands for all of its workloads.'));
    return;
  }
  const n = g.nodes[chosen.node];
  const edges = [...edgesOf(g, chosen)].map((i) => g.edges[i]);
  const within = (i) => i === chosen.node || g.nodes[i].parent === chosen.node || g.nodes[chosen.node].parent === i;
  const example = g.examples[n.name];
  replace(side, h('h2', {}, name(n.name)),
    h('p.muted', {}, `${n.kind}${n.pods ? `, ${count(n.pods, 'pod')}` : ''}`),
    h('div.tags', {}, example && h('a', { href: podLink(example) }, 'Policies and rules'),
      n.kind === 'namespace' && openNamespace && h('button.linklike', { type: 'button', onclick: () => openNamespace(n.name) }, 'Only this namespace')),
    list('Reaches', edges.filter((e) => within(e.from)), (e) => toOf(g, e), g),
    list('Is reached by', edges.filter((e) => within(e.to)), (e) => fromOf(g, e), g));
  announce(`${n.name}: ${count(edges.length, 'edge')}`);
}

export const podLink = (pod) => '#/pods/' + pod.split('/').map(encodeURIComponent).join('/');

function list(title, edges, other, g) {
  return h('section', {}, h('h2', {}, `${title} (${edges.length})`),
    edges.length ? h('ul', {}, edges.slice(0, 200).map((e) => h('li', {}, name(other(e)), ' ', e.state !== 'allowed' && tag(e.state, e.state),
      h('span.ports', {}, e.ports.map((p) => plain(p)).join(', '), ' ', explainLink(g, e))))) : h('p.muted', {}, 'Nothing.'));
}

// explainLink leads to the question why an edge is as it is, where it is about single workloads.
export function explainLink(g, e) {
  const end = (n) => (n.kind === 'outside' ? /^[0-9a-f.:]+/.exec(n.name)?.[0] ?? (n.name === 'internet' ? '198.51.100.7' : '') : g.examples[n.name]);
  const src = end(g.nodes[e.from]);
  const dst = end(g.nodes[e.to]);
  const port = /(\d+)\/(tcp|udp|sctp)/.exec(e.ports.find((p) => !p.startsWith('~')) ?? e.ports[0] ?? '');
  if (!src || !dst || !port) return null;
  return h('a', { href: '#/explain?' + new URLSearchParams({ src, dst, port: port[1], protocol: port[2] }) }, 'why?');
}

function edgeDetails(g, e) {
  return [h('h2', {}, name(fromOf(g, e)), ' → ', name(toOf(g, e))), h('p', {}, tag(e.state, e.state)),
    h('ul', {}, e.ports.slice(0, 100).map((p) => h('li', {}, p))), (e.why ?? []).slice(0, 5).map((w) => h('p.small', {}, w)), explainLink(g, e)];
}
