// Elements from names, properties and children. All texts become text nodes: no text is ever markup.

const svgNames = new Set(['svg', 'g', 'rect', 'path', 'text', 'tspan', 'title', 'defs', 'marker', 'line']);
const SVG = 'http://www.w3.org/2000/svg';

// most is how many characters of a text are shown.
const most = 400;

// plain returns a text of others as people may see it: what cannot be printed is escaped, as
// sluicectl does it, and it is cut.
export function plain(value, lines = false) {
  let text = String(value ?? '');
  let more = 0;
  if (!lines && text.length > most) {
    more = text.length - most;
    text = text.slice(0, most);
  }
  text = text.replace(/[\p{C}\p{Z}]/gu, (c) => {
    if (c === ' ' || (lines && c === '\n')) return c;
    const short = { '\n': '\\n', '\r': '\\r', '\t': '\\t' }[c];
    const code = c.codePointAt(0);
    if (short) return short;
    if (code < 0x80) return '\\x' + code.toString(16).padStart(2, '0');
    return code > 0xffff ? '\\U' + code.toString(16).padStart(8, '0') : '\\u' + code.toString(16).padStart(4, '0');
  });
  return more ? `${text}… (${more} characters more)` : text;
}

// h makes an element. Properties that begin with "on" are listeners; false and null leave one out.
export function h(name, properties = {}, ...children) {
  const [tag, ...classes] = name.split('.');
  const element = svgNames.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const c of classes) element.classList.add(c);
  for (const [key, value] of Object.entries(properties)) {
    if (value === false || value === null || value === undefined) continue;
    if (key.startsWith('on')) element.addEventListener(key.slice(2), value);
    else if (key === 'class') for (const c of value.split(' ')) { if (c) element.classList.add(c); }
    else if (key === 'value') element.value = value;
    else element.setAttribute(key, value === true ? '' : key === 'd' ? value : plain(value));
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const c of children.flat(Infinity)) {
    if (c === null || c === undefined || c === false) continue;
    element.append(c instanceof Node ? c : document.createTextNode(plain(c)));
  }
}

// name shows a name of others, whatever direction its letters are written in.
export const name = (text) => h('bdi', {}, text);

// replace puts other children into an element.
export function replace(element, ...children) {
  element.replaceChildren();
  append(element, children);
}

export const tag = (kind, text) => h('span.tag', { class: kind }, text ?? kind);

// count writes how many things there are.
export const count = (n, one, many = one + 's') => `${n} ${n === 1 ? one : many}`;

// announce has screen readers say a text.
export function announce(text) {
  document.getElementById('announce').textContent = plain(text);
}

// busy shows that something is under way in an element.
export const busy = (text = 'Loading…') => h('p.empty', { role: 'status' }, text);
export const failure = (err) => h('div.error', { role: 'alert' }, document.createTextNode(plain(err.message ?? err, true)));

// table makes a table of rows, of which it shows a page at a time. Columns have a title, a function
// that returns the content of a cell, and perhaps a class.
export function table({ caption, columns, rows, empty = 'Nothing.', page = 100, label }) {
  let from = 0;
  const body = h('tbody');
  const status = h('span', { 'aria-live': 'polite' });
  const back = h('button', { type: 'button', onclick: () => turn(-page) }, 'Previous');
  const on = h('button', { type: 'button', onclick: () => turn(page) }, 'Next');
  const pager = h('div.pager', {}, status, back, on);
  const scroll = h('div.scroll', { tabindex: 0, role: 'region', 'aria-label': label ?? caption ?? 'Table' },
    h('table', {}, caption && h('caption', {}, caption),
      h('thead', {}, h('tr', {}, columns.map((c) => h('th', { scope: 'col', class: c.class }, c.title)))), body));
  const root = h('div', {}, scroll, pager);
  function turn(by) {
    from = Math.max(0, Math.min(from + by, Math.floor(Math.max(0, rows.length - 1) / page) * page));
    scroll.scrollTop = 0;
    draw();
  }
  function draw() {
    const shown = rows.slice(from, from + page);
    replace(body, shown.length ? shown.map((row) => h('tr', {}, columns.map((c, i) => h(i === 0 ? 'th' : 'td', { scope: i === 0 && 'row', class: c.class }, c.cell(row)))))
      : h('tr', {}, h('td', { colspan: columns.length }, h('div.empty', {}, empty))));
    pager.hidden = rows.length <= page;
    pager.style.display = pager.hidden ? 'none' : '';
    back.disabled = from === 0;
    on.disabled = from + page >= rows.length;
    status.textContent = `${from + 1}–${from + shown.length} of ${rows.length}`;
  }
  draw();
  return root;
}
