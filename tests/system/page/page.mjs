// Tests the page in Chromium, and takes screenshots. The addresses come on the standard input.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

const { chromium } = createRequire(process.env.SLUICE_PLAYWRIGHT + '/')('playwright-core');
const config = JSON.parse(readFileSync(0, 'utf8'));
const browser = await chromium.launch({ executablePath: config.chromium, args: ['--no-sandbox'] });

// open opens a page that may not fail, load from elsewhere, or offend its policy.
async function open(url, { scheme = 'light', width = 1400, height = 900, refused = false } = {}) {
  const page = await browser.newPage({ viewport: { width, height }, colorScheme: scheme });
  page.setDefaultTimeout(60000); // ends what hangs
  page.bad = [];
  page.on('console', (m) => { if (m.type() === 'error' && !refused) page.bad.push(m.text()); });
  page.on('pageerror', (e) => page.bad.push(e.message));
  page.on('request', (r) => { if (new URL(r.url()).origin !== new URL(url).origin) page.bad.push('asks ' + r.url()); });
  await page.addInitScript(() => {
    window.slow = 0;
    new PerformanceObserver((l) => { for (const e of l.getEntries()) window.slow = Math.max(window.slow, e.duration); }).observe({ type: 'longtask', buffered: true });
  });
  await page.goto(url);
  await page.waitForSelector('main h1');
  return page;
}

async function close(page, name) {
  await check(page);
  assert.deepEqual(page.bad, [], name);
  await page.close();
  console.log('ok', name);
}

async function go(page, hash, selector = 'main h1') {
  await page.evaluate(() => document.querySelector('main').replaceChildren());
  await page.evaluate((h) => { if (location.hash === h) dispatchEvent(new Event('hashchange')); else location.hash = h; }, hash);
  await page.waitForSelector(selector);
  await page.waitForFunction(() => !document.querySelector('main .empty[role=status]'));
}

const shot = (page, name) => page.screenshot({ path: `${config.shots}/${name}.png` });

// check looks at what assistive technology gets, at contrasts, and at the width.
async function check(page) {
  const wrong = await page.evaluate(() => {
    const out = [];
    const seen = (e) => e.checkVisibility?.() && e.getBoundingClientRect().width > 1;
    for (const what of ['header', 'nav[aria-label]', 'main', 'h1']) if (document.querySelectorAll(what).length !== 1) out.push(`${document.querySelectorAll(what).length} ${what}`);
    for (const e of document.querySelectorAll('input, select, textarea')) if (!e.labels?.length && !e.getAttribute('aria-label')) out.push('no label: ' + e.outerHTML.slice(0, 80));
    for (const e of document.querySelectorAll('a, button, [role=button]')) if (!(e.textContent.trim() || e.getAttribute('aria-label'))) out.push('no name: ' + e.outerHTML.slice(0, 80));
    for (const e of document.querySelectorAll('thead th')) if (e.getAttribute('scope') !== 'col') out.push('no scope: ' + e.outerHTML.slice(0, 80));
    for (const e of document.querySelectorAll('[tabindex]')) if (+e.getAttribute('tabindex') > 0) out.push('tabindex above 0');
    if (document.documentElement.scrollWidth > innerWidth) out.push(`the page is ${document.documentElement.scrollWidth} wide, the window ${innerWidth}`);
    const canvas = Object.assign(document.createElement('canvas'), { width: 1, height: 1 }).getContext('2d', { willReadFrequently: true });
    const rgb = (c) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = c; canvas.fillRect(0, 0, 1, 1); return [...canvas.getImageData(0, 0, 1, 1).data]; };
    const light = ([r, g, b]) => [r, g, b].map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)).reduce((s, v, i) => s + v * [0.2126, 0.7152, 0.0722][i], 0);
    const behind = (e) => { for (let x = e; x; x = x.parentElement) { const c = rgb(getComputedStyle(x).backgroundColor); if (c[3] > 250) return c; } return [255, 255, 255]; };
    for (const e of document.querySelectorAll('main *, header *')) {
      if (![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()) || !seen(e) || e.closest('svg, [disabled], option, .hidden')) continue;
      const a = light(rgb(getComputedStyle(e).color));
      const b = light(behind(e));
      const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
      if (contrast < 4.5) out.push(`contrast ${contrast.toFixed(2)}: ${e.outerHTML.slice(0, 100)}`);
    }
    return [...new Set(out)].slice(0, 10);
  });
  assert.deepEqual(wrong, [], await page.title());
}

const views = ['map', 'matrix', 'pods', 'pods/shop/web-0', 'explain', 'verdicts', 'preview', 'status'];

// Every view in light, dark and narrow windows.
for (const [name, options] of Object.entries({ light: {}, dark: { scheme: 'dark' }, narrow: { width: 375, height: 740 } })) {
  const page = await open(config.shop, options);
  assert.ok(!page.url().includes('token'), 'the token stays in the address');
  for (const view of views) {
    await go(page, '#/' + view);
    await check(page);
    await shot(page, `${name}-${view.replaceAll('/', '-')}`);
    assert.equal(await page.locator('#tabs [aria-current=page]').count(), 1, view);
  }
  await close(page, `views, ${name}`);
}

// Without the token there is no answer, and the page says what to do.
{
  const page = await open(config.shop.replace(/#.*/, ''), { refused: true });
  assert.match(await page.textContent('main'), /token is missing or wrong/);
  await close(page, 'without the token');
}

// The map with the keyboard alone, and its table.
{
  const page = await open(config.shop);
  await page.waitForSelector('.stage svg');
  await page.keyboard.press('Tab');
  assert.equal(await page.evaluate(() => document.activeElement.className), 'skip');
  await page.keyboard.press('Enter');
  assert.equal(await page.evaluate(() => document.activeElement.id), 'main');
  for (let i = 0; i < 12 && !(await page.evaluate(() => document.activeElement.hasAttribute('data-node'))); i++) await page.keyboard.press('Tab');
  const focused = () => page.evaluate(() => document.activeElement.getAttribute('aria-label'));
  const first = await focused();
  await page.keyboard.press('ArrowRight');
  const second = await focused();
  assert.ok(first && second && first !== second, `arrow keys: ${first}, ${second}`);
  await page.keyboard.press('Enter');
  assert.match(await page.textContent('.side'), /Reaches \(/);
  assert.ok(await page.locator('.stage.focus').count());
  await shot(page, 'light-map-chosen');
  await page.keyboard.press('Escape');
  assert.equal(await page.locator('.stage.focus').count(), 0);
  await page.click('summary');
  assert.equal(await page.locator('main details tbody tr').count(), await page.locator('.stage path.edge').count(), 'the table has other edges than the map');
  await page.locator('g[data-node]', { hasText: 'catalog' }).last().click();
  await page.locator('.side a', { hasText: 'why?' }).first().click();
  await page.waitForSelector('.verdict');
  assert.match(await page.textContent('.verdict'), /allowed/);
  await close(page, 'map with the keyboard');
}

// The matrix with the keyboard.
{
  const page = await open(config.shop);
  await go(page, '#/matrix', '.matrix');
  await page.focus('.matrix td button[tabindex="0"]');
  const before = await page.textContent('.detail');
  for (const key of ['ArrowRight', 'ArrowDown', 'ArrowDown']) await page.keyboard.press(key);
  assert.notEqual(await page.textContent('.detail'), before);
  assert.equal(await page.locator('.matrix td button[tabindex="0"]').count(), 1);
  await shot(page, 'light-matrix-chosen');
  await close(page, 'matrix with the keyboard');
}

// Pods are found, and have their policies.
{
  const page = await open(config.shop);
  await go(page, '#/pods', 'tbody a');
  await page.fill('input[type=search]', 'app=web');
  await page.waitForFunction(() => document.querySelectorAll('tbody tr').length === 2);
  await page.click('tbody a');
  await page.waitForSelector('caption');
  assert.match(await page.textContent('main'), /Policies that select it \(4\)/);
  await close(page, 'pods');
}

// Questions.
{
  const page = await open(config.shop);
  await go(page, '#/explain');
  await page.fill('#src', 'shop/web-0');
  await page.fill('#dst', 'data/postgres-0');
  await page.fill('#port', '5432');
  await page.keyboard.press('Enter');
  await page.waitForSelector('.verdict');
  assert.match(await page.textContent('.verdict'), /^denied/);
  assert.match(await page.textContent('.answer'), /fix/);
  await shot(page, 'light-explained');
  await close(page, 'explain');
}
{
  const page = await open(config.shop, { refused: true });
  await go(page, '#/explain');
  await page.fill('#src', 'shop/nobody');
  await page.fill('#dst', '<b>');
  await page.keyboard.press('Enter');
  await page.waitForSelector('[role=alert]');
  await close(page, 'a question that makes no sense');
}

// A change.
for (const scheme of ['light', 'dark']) {
  const page = await open(config.shop, { scheme, height: 1300 });
  await go(page, '#/preview');
  await page.fill('textarea', config.change);
  await page.click('button[type=submit]');
  await page.waitForSelector('.opened-line');
  assert.equal(await page.locator('.stage .edge.closed-line').count(), 1);
  assert.match(await page.textContent('main'), /1 opened, 1 closed/);
  await shot(page, `${scheme}-previewed`);
  await close(page, `preview, ${scheme}`);
}

// Hostile names are shown as text.
for (const [name, view] of Object.entries({ map: '#/map', matrix: '#/matrix', pods: '#/pods', status: '#/status' })) {
  const page = await open(config.hostile);
  await go(page, view);
  const found = await page.evaluate(() => ({
    pwned: window.pwned, images: document.querySelectorAll('main img, main script').length,
    longest: Math.max(...[...document.querySelectorAll('body *')].flatMap((e) => [...e.childNodes]).filter((n) => n.nodeType === 3).map((n) => n.data.length)),
    control: [...document.querySelectorAll('body *')].flatMap((e) => [...e.childNodes].filter((n) => n.nodeType === 3).map((n) => n.data)).filter((t) => /[\p{Cc}\p{Cf}]/u.test(t.replaceAll('\n', ''))).length,
    marked: document.body.textContent.includes('<img src=x'),
  }));
  assert.equal(found.pwned, undefined);
  assert.equal(found.images, 0);
  assert.equal(found.control, 0, 'control characters');
  assert.ok(found.longest < 1000, `a text of ${found.longest} characters`);
  assert.ok(found.marked, 'the name is not shown');
  await shot(page, `hostile-${name}`);
  await close(page, `hostile names, ${name}`);
}

// scrolled scrolls through a view, and returns the longest time between two frames.
const scrolled = (page) => page.evaluate(async () => {
  const all = [document.scrollingElement, ...document.querySelectorAll('.scroll, .stage')].filter((e) => e.scrollHeight > e.clientHeight || e.scrollWidth > e.clientWidth);
  let longest = 0;
  let last = performance.now();
  for (const e of all) {
    for (let i = 1; i <= 30; i++) {
      e.scrollTo(e.scrollWidth * i / 30, e.scrollHeight * i / 30);
      await new Promise(requestAnimationFrame);
      longest = Math.max(longest, performance.now() - last);
      last = performance.now();
    }
    e.scrollTo(0, 0);
  }
  return Math.round(longest);
});

// 1 000 pods and 300 policies stay fluid: of teams that call each other, and of the generator.
for (const [cluster, found] of Object.entries({ many: 25, generated: 1 })) {
  const page = await open(config[cluster]);
  const times = {};
  const namespace = cluster === 'many' ? 'team-01' : 'ns-0';
  for (const [name, hash, selector] of [['map', '#/map', '.stage svg'], ['namespace', '#/map?namespace=' + namespace, '.stage svg'], ['matrix', '#/matrix', '.matrix'], ['pods', '#/pods', 'tbody a']]) {
    await page.evaluate(() => { window.slow = 0; });
    const begin = Date.now();
    await go(page, hash, selector);
    times[name] = { ms: Date.now() - begin, longestTask: Math.round(await page.evaluate(() => window.slow)), elements: await page.locator('main *').count(), longestFrame: await scrolled(page) };
    await shot(page, `${cluster}-${name}`);
  }
  await page.evaluate(() => { window.slow = 0; });
  const begin = Date.now();
  await page.locator('input[type=search]').pressSequentially(cluster === 'many' ? 'worker-7' : 'pod-114');
  const typed = Date.now() - begin;
  await page.waitForFunction((n) => document.querySelectorAll('tbody tr').length === n, found);
  times.search = { ms: Date.now() - begin, typed, longestTask: Math.round(await page.evaluate(() => window.slow)) };
  console.log(`1 000 pods, ${cluster}:`, JSON.stringify(times));
  for (const [name, t] of Object.entries(times)) {
    assert.ok((t.elements ?? 0) < 12000, `${name} has ${t.elements} elements`);
    assert.ok(t.longestTask < 500, `${name} is busy for ${t.longestTask} ms`); // many times what it takes
    assert.ok((t.longestFrame ?? 0) < 500, `a frame of ${name} takes ${t.longestFrame} ms`);
  }
  await close(page, `1 000 pods, ${cluster}`);
}

// 10 000 verdicts each second are read, and the page answers.
{
  const page = await open(config.flood);
  await go(page, '#/verdicts', 'tbody tr');
  await page.evaluate(() => { window.slow = 0; });
  await page.waitForFunction(() => Number(/([\d]+) verdicts/.exec(document.querySelector('.lead').textContent)?.[1]) > 5000);
  const longest = Math.round(await page.evaluate(() => window.slow));
  console.log(`verdicts: longest task ${longest} ms, ${await page.locator('tbody tr').count()} rows`);
  assert.ok(await page.locator('tbody tr').count() <= 250);
  await page.click('text=Pause');
  await page.waitForFunction(() => document.querySelector('.lead').textContent === 'Paused.');
  await shot(page, 'flood-verdicts');
  await go(page, '#/status', '.tiles');
  await shot(page, 'flood-status');
  await close(page, 'verdicts');
}

// An empty cluster.
{
  const page = await open(config.empty);
  for (const view of ['map', 'matrix', 'pods']) await go(page, '#/' + view);
  await close(page, 'an empty cluster');
}

await browser.close();
