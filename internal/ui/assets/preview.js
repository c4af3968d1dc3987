import { announce, busy, count, failure, h, name, replace, table, tag } from './dom.js';
import { changesFirst, drawing, edgeColumns, legend } from './drawing.js';

const example = `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: example, namespace: default}
spec:
  podSelector: {matchLabels: {app: web}}
  ingress:
  - from: [{podSelector: {matchLabels: {app: client}}}]
    ports: [{port: 80}]
`;

export async function previewView(main, { post, signal }) {
  const box = h('textarea', { id: 'yaml', spellcheck: 'false', placeholder: example, 'aria-describedby': 'yaml-hint' });
  const gone = h('input', { type: 'checkbox' });
  const button = h('button.primary', { type: 'submit' }, 'Preview');
  const result = h('section', { 'aria-label': 'Effects' });
  main.append(h('div.bar', {}, h('h1', {}, 'What would this change do?'), h('p.lead', { id: 'yaml-hint' }, 'Paste manifests: policies, pods, namespaces. Nothing is changed. The comparison is exact, for every flow of every pod.')),
    h('form.card', { 'aria-label': 'Change', onsubmit: (e) => { e.preventDefault(); ask(); } }, h('label', { for: 'yaml' }, 'Manifests'), box,
      h('div.bar', {}, h('label.check', {}, gone, 'Delete these objects instead'), button)), result);
  async function ask() {
    button.disabled = true;
    replace(result, busy('Comparing…'));
    try {
      const r = await post('preview', { yaml: box.value, delete: gone.checked }, signal);
      show(r);
    } catch (err) {
      if (err.name !== 'AbortError') replace(result, failure(err));
    } finally {
      button.disabled = false;
    }
  }
  function show(r) {
    const all = r.differences ?? [];
    const opened = all.filter((d) => d.change === 'opened').length;
    const words = all.length ? `${opened} opened, ${all.length - opened} closed` : 'No flow opens or closes';
    const side = (s) => [...(s.workloads ?? []), ...(s.outside ?? [])].slice(0, 8).map((t) => h('div', {}, name(t)));
    const parts = [h('div.bar', {}, h('h2', {}, words), h('p.lead', {}, `${count(r.pods, 'pod')} in ${count(r.groups, 'group')}, ${count(r.flows, 'flow')} compared`))];
    if (all.length) {
      parts.push(h('div.card.flush', {}, table({
        label: 'Flows that open or close', rows: all, columns: [
          { title: 'Change', cell: (d) => tag(d.change, d.change) },
          { title: 'From', cell: (d) => side(d.from) },
          { title: 'To', cell: (d) => side(d.to) },
          { title: 'Ports', cell: (d) => d.ports.slice(0, 6).join(', ') + (d.ports.length > 6 ? `, and ${d.ports.length - 6} more` : '') + (d.family ? ` (${d.family})` : '') },
          { title: 'Was', class: 'wide', cell: (d) => d.was.text },
          { title: 'Is', class: 'wide', cell: (d) => d.is.text },
        ],
      })));
      const g = r.graph;
      const d = drawing(g, { choose: (chosen) => d.mark(chosen) });
      parts.push(h('div.card.flush', {}, d.stage, legend(g), h('details', {}, h('summary', {}, 'The same as a table'), table({ label: 'Edges after the change', columns: edgeColumns(g), rows: changesFirst(g) }))));
    }
    if (r.nodes?.length) {
      parts.push(h('div.card.flush', {}, table({
        caption: 'What it takes', rows: r.nodes.flatMap((n) => n.dataplanes.map((p) => ({ n, p }))), columns: [
          { title: 'Node', cell: (x) => name(x.n.node) }, { title: 'Dataplane', cell: (x) => x.p.renderer }, { title: 'Operations', class: 'number', cell: (x) => x.p.operations },
          { title: 'Rules', class: 'number', cell: (x) => `${x.p.before.rules} → ${x.p.after.rules}` }, { title: 'Fits', cell: (x) => tag(x.p.fits ? 'good' : 'bad', x.p.fits ? 'yes' : x.p.error) },
        ],
      })));
    }
    parts.push(...(r.notes ?? []).map((n) => h('p.note', {}, n)), ...(r.disagreements ?? []).map((n) => h('p.error', {}, n)));
    replace(result, h('div', { class: 'stack' }, parts));
    announce(words);
  }
}
