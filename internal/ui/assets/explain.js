import { announce, busy, count, failure, h, plain, replace, tag } from './dom.js';

export async function explainView(main, { post, params, signal }) {
  const field = (title, id, value, hint) => h('label', { class: 'wide-field' }, title, h('input', { type: 'text', id, name: id, value, placeholder: hint, autocomplete: 'off', spellcheck: 'false', required: id !== 'port' }));
  const protocol = h('select', { id: 'protocol', name: 'protocol' }, ['tcp', 'udp', 'sctp', 'icmp', 'icmpv6'].map((p) => h('option', {}, p)));
  protocol.value = params.get('protocol') ?? 'tcp';
  const result = h('section', { 'aria-label': 'Answer', 'aria-live': 'polite' });
  const src = field('From', 'src', params.get('src') ?? '', 'shop/web-0, app=web, 10.1.2.3');
  const dst = field('To', 'dst', params.get('dst') ?? '', 'data/postgres-0, svc/shop/cart, 10.1.2.3');
  const port = field('Port', 'port', params.get('port') ?? '', '5432, http');
  const button = h('button.primary', { type: 'submit' }, 'Explain');
  const form = h('form.card', { 'aria-label': 'Question', onsubmit: (e) => { e.preventDefault(); ask(); } }, h('div.bar', {}, src, dst, port, h('label', {}, 'Protocol', protocol), button));
  main.append(h('div.bar', {}, h('h1', {}, 'Why is it allowed, or denied?'),
    h('p.lead', {}, 'Ends are pods, labels such as app=web or shop/app=web, addresses, or services as a destination. Labels ask about all pods that have them.')), form, result);
  const value = (label) => label.querySelector('input').value.trim();
  async function ask() {
    if (!value(src) || !value(dst)) { replace(result, failure('Name both ends.')); return; }
    button.disabled = true;
    replace(result, busy('Asking…'));
    const isPlain = protocol.value.startsWith('icmp');
    try {
      const a = await post('explain', { src: value(src), dst: value(dst), port: isPlain ? '' : value(port), protocol: protocol.value }, signal);
      replace(result, answer(a));
      announce(a.allowed ? 'allowed' : 'denied');
    } catch (err) {
      if (err.name !== 'AbortError') replace(result, failure(err));
    } finally {
      button.disabled = false;
    }
  }
  if (params.get('src') && params.get('dst')) await ask();
}

// answer shows what was answered in words, and what decides as a table for each flow.
function answer(a) {
  const [head, ...rest] = a.text.trimEnd().split('\n');
  const word = /^(ALLOWED|DENIED)\s+(.*)$/.exec(head);
  const body = word ? rest : [head, ...rest];
  const answers = a.answers ?? [];
  const agree = answers.every((x) => (x.renderers ?? []).every((r) => r.agrees));
  return h('div.card', {},
    h('div.verdict', {}, tag(a.allowed ? 'good' : 'bad', a.allowed ? 'allowed' : answers.some((x) => x.allowed) ? 'denied in part' : 'denied'), h('span', {}, word ? word[2] : count(answers.length + (a.more ?? 0), 'flow')),
      answers.some((x) => (x.renderers ?? []).some((r) => !r.unasked && (r.decides ?? []).length)) && tag(agree ? 'good' : 'warn', agree ? 'the dataplane agrees' : 'the dataplane differs')),
    h('pre.answer', {}, document.createTextNode(plain(body.join('\n'), true))),
    h('details', {}, h('summary', {}, 'Every policy, rule and change'), h('pre.answer', {}, document.createTextNode(plain(a.whole, true)))));
}
