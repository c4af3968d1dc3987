// The drawing of a graph that was laid out by the server.
import { h, name, plain, tag } from './dom.js';

const states = ['allowed', 'opened', 'closed', 'denied'];
export const meaning = { allowed: 'allowed', opened: 'opened by the change', closed: 'closed by the change', denied: 'denied' };
const longest = 26;

const cut = (text) => { const t = plain(text); return [...t].length > longest ? [...t].slice(0, longest - 1).join('') + '…' : t; };

// ends names both ends of an edge.
export const fromOf = (g, e) => g.nodes[e.from].name;
export const toOf = (g, e) => g.nodes[e.to].name;

export function drawing(g, { choose }) {
  const l = g.layout;
  const hasChildren = new Set(g.nodes.map((n) => n.parent));
  const nodes = g.nodes.map((n, i) => nodeOf(g, n, i, hasChildren.has(i)));
  const lines = g.edges.map((e, i) => h('path.edge', { class: `${e.state}-line`, d: l.lines[i].path, 'marker-end': `url(#tip-${e.state})` }));
  const hits = g.edges.map((e, i) => h('path.hit', { d: l.lines[i].path, onclick: () => choose({ edge: i }) },
    h('title', {}, sentence(g, e))));
  const boxes = nodes.filter((_, i) => hasChildren.has(i));
  const leaves = nodes.filter((_, i) => !hasChildren.has(i));
  const svg = h('svg', { role: 'group', 'aria-label': 'Service map. Arrow keys go from node to node, Enter chooses one. The table below has the same edges.' },
    h('defs', {}, states.map((s) => h('marker', { id: `tip-${s}`, viewBox: '0 0 8 8', refX: 7.5, refY: 4, markerWidth: 8, markerHeight: 8, orient: 'auto', markerUnits: 'userSpaceOnUse' },
      h('path', { class: `${s}-tip`, d: 'M0 0L8 4L0 8z' })))),
    boxes, lines, hits, leaves);
  const stage = h('div.stage', {}, svg);
  requestAnimationFrame(() => { // as high as the drawing, within what a window has
    const wanted = Math.min(1.5, stage.clientWidth / (l.width + 24)) * (l.height + 24);
    stage.style.height = `${Math.round(Math.max(320, Math.min(wanted, innerHeight * 0.66)))}px`;
    view.begin();
  });
  const view = zoomable(stage, svg, l);
  let current = Math.max(0, g.nodes.findIndex((_, i) => !hasChildren.has(i)));
  nodes.forEach((element, i) => {
    element.setAttribute('tabindex', i === current ? 0 : -1);
    element.addEventListener('click', () => { focus(i, false); choose({ node: i }); });
    element.addEventListener('keydown', (event) => {
      const next = neighbour(l.boxes, i, event.key);
      if (event.key === 'Enter' || event.key === ' ') choose({ node: i });
      else if (event.key === 'Escape') choose({});
      else if (next >= 0) focus(next, true);
      else return;
      event.preventDefault();
    });
  });
  function focus(i, move) {
    nodes[current]?.setAttribute('tabindex', -1);
    current = i;
    nodes[i].setAttribute('tabindex', 0);
    if (move) { nodes[i].focus(); view.reveal(l.boxes[i]); }
  }
  // mark shows only what belongs to a choice.
  function mark(chosen) {
    const on = new Set();
    const edges = edgesOf(g, chosen);
    stage.classList.toggle('focus', chosen.node !== undefined || chosen.edge !== undefined);
    lines.forEach((line, i) => line.classList.toggle('on', edges.has(i)));
    for (const i of edges) for (const n of [g.edges[i].from, g.edges[i].to]) on.add(n);
    if (chosen.node !== undefined) on.add(chosen.node);
    g.nodes.forEach((n, i) => {
      const inside = on.has(n.parent) || g.nodes.some((c, k) => c.parent === i && on.has(k));
      nodes[i].classList.toggle('on', on.has(i) || inside);
      nodes[i].classList.toggle('chosen', chosen.node === i);
    });
  }
  return { stage, mark, view };
}

// edgesOf returns the edges of a choice: those of a node are also those of its namespace.
export function edgesOf(g, chosen) {
  const out = new Set();
  g.edges.forEach((e, i) => {
    if (chosen.edge === i) out.add(i);
    if (chosen.node === undefined) return;
    const own = new Set([chosen.node, g.nodes[chosen.node].parent]);
    own.delete(-1);
    const within = (n) => n === chosen.node || g.nodes[n].parent === chosen.node || (n === g.nodes[chosen.node].parent && own.has(n));
    if (within(e.from) || within(e.to)) out.add(i);
  });
  return out;
}

export const sentence = (g, e) => `${meaning[e.state]}: ${plain(fromOf(g, e))} to ${plain(toOf(g, e))}, ${e.ports.map((p) => plain(p)).join(', ')}`;

function nodeOf(g, n, i, isBox) {
  const b = g.layout.boxes[i];
  const edges = g.edges.filter((e) => e.from === i || e.to === i);
  const label = `${n.kind} ${plain(n.name)}${n.pods > 1 ? `, ${n.pods} pods` : ''}, ${edges.filter((e) => e.to === i).length} edges in, ${edges.filter((e) => e.from === i).length} out`;
  const group = h('g', { 'data-node': i, role: 'button', 'aria-label': label },
    h('title', {}, n.name),
    h('rect', { class: isBox ? 'box' : n.kind === 'outside' ? 'node outside' : 'node', x: b.x, y: b.y, width: b.w, height: b.h, rx: isBox ? 12 : n.kind === 'outside' ? b.h / 2 : 8 }));
  if (isBox) group.append(h('text.title', { x: b.x + 16, y: b.y + 20 }, cut(n.label)));
  else {
    group.append(h('text', { x: b.x + b.w / 2, y: b.y + b.h / 2 + 4.5, 'text-anchor': 'middle' }, cut(n.label),
      n.pods > 1 && h('tspan.pods', {}, ` ×${n.pods}`)));
  }
  return group;
}

// neighbour returns the box that is next in the direction of an arrow key, or -1.
function neighbour(boxes, from, key) {
  const way = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[key];
  if (!way) return -1;
  const centre = (b) => [b.x + b.w / 2, b.y + b.h / 2];
  const [x, y] = centre(boxes[from]);
  let best = -1;
  let least = Infinity;
  boxes.forEach((b, i) => {
    const [bx, by] = centre(b);
    const along = (bx - x) * way[0] + (by - y) * way[1];
    const across = Math.abs((bx - x) * way[1]) + Math.abs((by - y) * way[0]);
    if (i !== from && along > 1 && along + 2 * across < least) { best = i; least = along + 2 * across; }
  });
  return best;
}

// zoomable lets a drawing be dragged, and made larger and smaller.
function zoomable(stage, svg, l) {
  const pad = 12;
  let box = fit();
  function fit() { return { x: -pad, y: -pad, w: l.width + 2 * pad, h: l.height + 2 * pad }; }
  function apply() { svg.setAttribute('viewBox', `${box.x} ${box.y} ${box.w} ${box.h}`); }
  function zoom(by, cx = box.x + box.w / 2, cy = box.y + box.h / 2) {
    const scale = stage.clientWidth ? stage.clientWidth / (box.w * by) : 1;
    if (scale > 4 || box.w * by > 6 * (l.width + 200)) return;
    box = { x: cx - (cx - box.x) * by, y: cy - (cy - box.y) * by, w: box.w * by, h: box.h * by };
    apply();
  }
  function point(event) {
    const m = svg.getScreenCTM();
    return m ? new DOMPoint(event.clientX, event.clientY).matrixTransform(m.inverse()) : new DOMPoint(0, 0);
  }
  stage.addEventListener('wheel', (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const p = point(event);
    zoom(event.deltaY > 0 ? 1.15 : 1 / 1.15, p.x, p.y);
  }, { passive: false });
  let dragged = null;
  stage.addEventListener('pointerdown', (event) => { dragged = { p: point(event), moved: false }; });
  stage.addEventListener('pointermove', (event) => {
    if (!dragged || !(event.buttons & 1)) { dragged = null; return; }
    const p = point(event);
    if (!dragged.moved && Math.hypot(p.x - dragged.p.x, p.y - dragged.p.y) < 4) return;
    dragged.moved = true;
    box.x -= p.x - dragged.p.x;
    box.y -= p.y - dragged.p.y;
    apply();
  });
  stage.addEventListener('click', (event) => { if (dragged?.moved) event.stopPropagation(); dragged = null; }, true);
  apply();
  return {
    // begin shows all where it can be read, and otherwise the begin of it.
    begin: () => {
      const least = 0.62;
      if (stage.clientWidth / box.w >= least || !stage.clientWidth) return;
      const h = stage.clientHeight / least;
      box = { x: -pad, y: Math.min(-pad, (l.height - h) / 2), w: stage.clientWidth / least, h };
      apply();
    },
    in: () => zoom(1 / 1.3), out: () => zoom(1.3), fit: () => { box = fit(); apply(); },
    reveal: (b) => {
      if (b.x < box.x || b.y < box.y || b.x + b.w > box.x + box.w || b.y + b.h > box.y + box.h) {
        box.x = b.x + b.w / 2 - box.w / 2;
        box.y = b.y + b.h / 2 - box.h / 2;
        apply();
      }
    },
  };
}

export function legend(g) {
  const used = states.filter((s) => g.edges.some((e) => e.state === s));
  return h('ul.legend', { 'aria-label': 'Legend' }, used.map((s) => h('li', {}, h('svg', { viewBox: '0 0 36 10', 'aria-hidden': 'true' },
    h('path.edge', { class: `${s}-line`, d: 'M0 5h34', 'stroke-width': 2 })), meaning[s])),
  g.nodes.some((n) => n.pods > 1) && h('li', {}, '×2 pods of a workload'),
  g.edges.some((e) => e.ports.some((p) => p.startsWith('~'))) && h('li', {}, '~ some of the pods'));
}

// changesFirst orders edges as a table has them.
export const changesFirst = (g) => [...g.edges.filter((e) => e.state === 'opened' || e.state === 'closed'), ...g.edges.filter((e) => e.state !== 'opened' && e.state !== 'closed')];

// edgeColumns are those of the table that stands for a drawing.
export const edgeColumns = (g) => [
  { title: 'From', cell: (e) => name(fromOf(g, e)) },
  { title: 'To', cell: (e) => name(toOf(g, e)) },
  { title: 'State', cell: (e) => tag(e.state, e.state) },
  { title: 'Ports', cell: (e) => e.ports.map((p) => plain(p)).join(', ') },
  ...(g.compared ? [{ title: 'Why', cell: (e) => (e.why ?? []).slice(0, 3).map((w) => h('div.small', {}, w)) }] : []),
];
