import { busy, h, plain, replace } from './dom.js';
import { namespaceField } from './map.js';

const signs = { none: '·', some: '◐', all: '●' };
const changes = { opened: '+', closed: '−', both: '±' };

export async function matrixView(main, { get, query, about, params, signal }) {
  let namespace = params.get('namespace') ?? '';
  const place = h('div.card.flush');
  const detail = h('p.detail.card', { 'aria-live': 'polite' }, 'Choose a cell to see its ports.');
  const lead = h('p.lead', {}, 'Rows are sources, columns destinations. ● every port that the destination has, ◐ some, · none. Verdicts of the specification.');
  main.append(h('div.bar', {}, h('h1', {}, 'Matrix'), namespaceField(about, namespace, (ns) => { namespace = ns; load(); }), lead), detail, place);
  async function load() {
    replace(place, busy());
    const m = await get('matrix' + query({ namespace }), signal);
    replace(place, m.groups.length ? grid(m, detail) : h('p.empty', {}, 'There are no pods with addresses yet.'));
    if (m.namespaces) place.prepend(h('p.note', {}, 'Grouped by namespace, a few pods of each asked: choose a namespace to see its workloads.'));
  }
  await load();
}

// grid makes the table. One cell at a time is in the order of Tab; arrow keys go to the others.
export function grid(m, detail) {
  const asked = (i, j) => (m.cells[i][j].ports ?? []).length > 0 || m.cells[i][j].change;
  const rows = m.groups.map((_, i) => i).filter((i) => m.groups.some((_, j) => asked(i, j)));
  const columns = m.groups.map((_, j) => j).filter((j) => m.groups.some((_, i) => asked(i, j)));
  const heads = columns.map((j) => h('th', { scope: 'col', title: m.groups[j].name }, h('span', {}, m.groups[j].name)));
  const buttons = [];
  const body = rows.map((i, r) => {
    buttons[r] = [];
    return h('tr', {}, h('th', { scope: 'row', title: m.groups[i].name }, m.groups[i].name, m.groups[i].members > 1 && h('span.muted', {}, ` ×${m.groups[i].members}`)),
      columns.map((j, c) => {
        if (!asked(i, j)) return h('td');
        const cell = m.cells[i][j];
        const words = `${plain(m.groups[i].name)} to ${plain(m.groups[j].name)}: ${portsOf(cell)}`;
        const button = h('button', { type: 'button', class: cell.change ?? cell.reach, tabindex: -1, 'aria-label': words, onfocus: () => choose(r, c), onclick: () => choose(r, c), onkeydown: (e) => move(e, r, c) }, cell.change ? changes[cell.change] : signs[cell.reach]);
        buttons[r][c] = button;
        return h('td', {}, button);
      }));
  });
  const table = h('table.matrix', {}, h('caption.hidden', {}, 'Who can talk to whom'),
    h('thead', {}, h('tr', {}, h('th', { scope: 'col' }, 'from \\ to'), heads)), h('tbody', {}, body));
  buttons.flat().find(Boolean)?.setAttribute('tabindex', 0);
  let last = null;
  function choose(r, c) {
    const i = rows[r];
    const j = columns[c];
    last?.();
    body[r].classList.add('on');
    heads[c].classList.add('on');
    last = () => { body[r].classList.remove('on'); heads[c].classList.remove('on'); };
    for (const b of buttons.flat()) b?.tabIndex === 0 && b.setAttribute('tabindex', -1);
    buttons[r][c].setAttribute('tabindex', 0);
    const link = question(m, i, j);
    replace(detail, h('strong', {}, m.groups[i].name, ' → ', m.groups[j].name), ': ', portsOf(m.cells[i][j]), ' ', link && h('a', { href: link }, 'why?'));
  }
  function move(event, r, c) {
    const way = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
    if (!way) return;
    event.preventDefault();
    for (let [y, x] = [r + way[0], c + way[1]]; buttons[y] && x >= 0 && x < columns.length; y += way[0], x += way[1]) {
      if (buttons[y][x]) { buttons[y][x].focus(); return; }
    }
  }
  return h('div.scroll', { role: 'region', 'aria-label': 'Matrix' }, table);
}

const portText = (p) => (p.name === 'other ports' ? p.name : `${p.name ? p.name + ':' : ''}${p.number}/${p.protocol}`);

function portsOf(cell) {
  const open = (cell.ports ?? []).filter((p) => p.reach !== 'none').map((p) => (p.reach === 'some' ? '~' : '') + plain(portText(p.port)));
  const change = cell.change ? ` (by the change: ${cell.change === 'both' ? 'some opened, some closed' : cell.change})` : '';
  return (open.length ? open.slice(0, 20).join(', ') : 'nothing') + change;
}

function question(m, i, j) {
  const end = (g) => (g.external ? (g.name === 'internet' ? '198.51.100.7' : g.name.split('/')[0]) : m.examples[g.name]);
  const port = (m.cells[i][j].ports ?? [])[0]?.port;
  const src = end(m.groups[i]);
  const dst = end(m.groups[j]);
  return src && dst && port ? '#/explain?' + new URLSearchParams({ src, dst, port: port.number, protocol: port.protocol }) : null;
}
