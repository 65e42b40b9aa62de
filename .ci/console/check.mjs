// Walks through the console of the example in Chromium, with script and without, and lets axe look at each page.
//
//   node check.mjs EXAMPLE DESK [PICTURES]
//
// EXAMPLE and DESK are the built programs; PICTURES a folder for screenshots, made if need be.
import assert from 'node:assert/strict';
import * as child from 'node:child_process';
import {mkdirSync, readFileSync} from 'node:fs';
import {createRequire} from 'node:module';
import {createInterface} from 'node:readline';
import {join} from 'node:path';
import {chromium} from 'playwright-core';
import {accents, embed} from './embed.mjs';
import {operate, tabTo} from './operate.mjs';

const [example, desk, pictures] = process.argv.slice(2);
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

// start runs a program on a free port and returns the address of its console.
async function start(program) {
  const server = child.spawn(program, ['-addr', '127.0.0.1:0'], {stdio: ['ignore', 'pipe', 'ignore']});
  for await (const line of createInterface({input: server.stdout})) {
    const found = /^Console at (\S+)(?: with the password (\S+))?/.exec(line);
    if (found) return {server, home: found[1], password: found[2]};
  }
  throw new Error('the program did not say where its console is');
}

const {server, home, password} = await start(example);
const base = new URL(home).origin;
const patience = 300_000; // ms; only what hangs takes that long
const browser = await chromium.launch({
  timeout: patience,
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
});

let looked = 0;

// look lets axe judge a page with the pointer on its first button, and takes its picture.
async function look(page, name) {
  await page.waitForLoadState();
  const box = await page.locator('.button.primary:visible').first().boundingBox({timeout: 100}).catch(() => null);
  if (box) {
    await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
    await page.waitForTimeout(200); // the button changes in 120 ms
  }
  await page.evaluate(axe);
  const {violations} = await page.evaluate(() => window.axe.run(document, {resultTypes: ['violations']}));
  const said = violations.map(({id, nodes}) => `${id}: ${nodes.map((n) => `${n.html} ${n.failureSummary}`).join('\n  ')}`).join('\n');
  assert.equal(violations.length, 0, `${name}: axe finds\n${said}`);
  const {scroll, client} = await page.evaluate(() => ({scroll: document.documentElement.scrollWidth, client: document.documentElement.clientWidth}));
  assert.ok(scroll <= client, `${name}: the page is ${scroll} wide in a window of ${client}`);
  looked++;
  if (pictures) {
    mkdirSync(pictures, {recursive: true});
    await page.screenshot({path: join(pictures, `${name}.png`), fullPage: true});
  }
}

async function account(secret) {
  const {status} = await fetch(`${base}/api/v1/account`, {headers: {Authorization: `Bearer ${secret}`}});
  return status;
}

async function open(options) {
  const context = await browser.newContext({locale: 'en-GB', timezoneId: 'UTC', ...options});
  const page = await context.newPage();
  page.setDefaultTimeout(patience);
  const complaints = [];
  page.on('console', (message) => {
    // The refusals that this walk provokes are told on the console too.
    if (message.type() === 'error' && !/status of 4\d\d/.test(message.text())) complaints.push(message.text());
  });
  page.on('pageerror', (error) => complaints.push(String(error)));
  return {context, page, complaints};
}

async function signIn(page) {
  await page.goto(`${home}/sign-in`);
  await page.getByLabel('password').fill(password);
  await page.getByRole('button', {name: 'Sign in'}).click();
}

// walk creates, copies, uses, rotates and revokes a key.
async function walk(name, options) {
  const {context, page, complaints} = await open(options);
  const script = options.javaScriptEnabled !== false;
  const see = async (what) => { if (script) await look(page, `${name}-${what}`); };
  if (script) await context.grantPermissions(['clipboard-read', 'clipboard-write'], {origin: base});

  await page.goto(home);
  await see('signed-out');
  await page.getByRole('link', {name: 'Sign in'}).click();
  await see('sign-in');
  await signIn(page);
  await see('list');

  await page.getByRole('link', {name: 'Create API key'}).click();
  await see('create');
  await page.getByRole('link', {name: 'External worker'}).or(page.getByRole('button', {name: 'External worker'})).click();
  await page.waitForLoadState(); // count does not wait
  const picked = () => page.locator('.family input:checked').evaluateAll((inputs) => inputs.map(({value}) => value).filter(Boolean).join(' '));
  assert.equal(await picked(), 'deliverables:write chat:read chat:write');
  await access(page, 'deliverables', 'None');
  await access(page, 'chat', 'None');

  // The server's own refusal, behind the browser's.
  await page.locator('form').evaluate((form) => { form.noValidate = true; }).catch(() => {});
  await page.getByLabel('Name', {exact: true}).fill(`Shop, ${name}`);
  await page.getByRole('radio', {name: 'Production'}).first().check();
  await page.getByRole('button', {name: 'Create API key'}).click();
  assert.match(await page.getByRole('alert').textContent(), /Nothing was created/);
  assert.equal(await page.getByLabel('Name', {exact: true}).inputValue(), `Shop, ${name}`);
  const focus = () => page.evaluate(() => document.activeElement.getAttribute('role')).catch(() => 'alert');
  for (let i = 0; i < 100 && await focus() !== 'alert'; i++) await page.waitForTimeout(100); // a script sets it
  assert.equal(await focus(), 'alert', 'the focus');
  await see('create-refused');

  await access(page, 'account', 'Read');
  await access(page, 'tasks', 'Both');
  if (script) await finds(page);
  await page.getByLabel('The key expires').selectOption('90');
  const secret = await shown(page, script, () => page.getByRole('button', {name: 'Create API key'})[script ? 'dblclick' : 'click']());
  await see('secret');
  await samples(page);
  assert.equal(await account(secret), 200);
  await used(page, context, script);
  await see('used');
  assert.ok(!page.url().includes('svc_') && (await context.cookies()).every(({value}) => !value.includes('svc_')));

  await page.reload();
  assert.match(await page.textContent('h1'), /The secret has been shown/);
  assert.doesNotMatch(await page.content(), /svc_live_[0-9A-Za-z]{38}/);
  await see('replay');

  await page.getByRole('link', {name: 'Show all keys'}).click();
  await page.waitForLoadState();
  assert.equal(await page.getByRole('link', {name: `Shop, ${name}`}).count(), 1, 'a reload made another key');
  await page.getByRole('link', {name: `Shop, ${name}`}).click();
  await see('key');
  await page.getByRole('link', {name: 'Renew'}).click();
  await see('renew');
  await page.goBack();
  await page.getByRole('link', {name: 'Create one like it'}).click();
  await see('like');
  await page.goBack();
  await page.getByRole('link', {name: 'Rotate'}).click();
  await see('rotate');
  await page.getByRole('radio', {name: 'At once'}).check();
  const next = await shown(page, script, () => page.getByRole('button', {name: 'Rotate'}).click());
  await see('rotated');
  assert.notEqual(next, secret);
  assert.deepEqual([await account(secret), await account(next)], [401, 200], 'the old key and the new one');

  await page.getByRole('link', {name: 'show all keys'}).click();
  await page.getByRole('link', {name: `Shop, ${name}`}).first().click();
  await page.getByRole('link', {name: 'Revoke'}).click();
  await see('revoke');
  await page.getByRole('button', {name: 'Revoke for good'}).click();
  assert.match(await page.textContent('main'), /was revoked on/);
  await see('revoked');
  assert.equal(await account(next), 401, 'the revoked key');
  await page.goto(home);
  await page.getByRole('link', {name: 'Audit'}).click();
  await see('audit');
  await page.goto(`${home}?status=expired`);
  await see('none');
  assert.deepEqual(complaints, [], 'the browser complains');
  await context.close();
}

// access picks what a family's scopes allow.
async function access(page, family, what) {
  await page.getByRole('radiogroup', {name: `Access to ${family}`}).getByRole('radio', {name: what}).check();
}

// finds searches the scopes, and reads the summary.
async function finds(page) {
  const search = page.getByRole('searchbox');
  await search.fill('Cancel');
  assert.deepEqual(await page.locator('.family:visible .head-of').allTextContents(), ['tasks']);
  await search.fill('no such');
  await page.getByText('No scope has this').waitFor();
  await search.fill('');
  assert.deepEqual(await page.locator('[data-sum="scopes"] code').allTextContents(), ['account:read', 'tasks:read', 'tasks:write']);
  for (const [button, count] of [['All', 16], ['Read only', 7], ['None', 0]]) {
    await page.getByRole('button', {name: button, exact: true}).click();
    assert.equal(await page.locator('[data-sum="scopes"] code').count(), count, button);
  }
  await access(page, 'account', 'Read');
  await access(page, 'tasks', 'Read');
}

// work operates the keys of a desk.
async function work(name, options) {
  const {server, home} = await start(desk);
  const {context, page, complaints} = await open(options);
  const script = options.javaScriptEnabled !== false;
  try {
    if (script) await page.clock.install();
    await operate(page, home, script, options.viewport.width > 1000, async (what) => {
      if (script) await look(page, `${name}-${what}`);
    });
    assert.deepEqual(complaints, [], 'the browser complains');
  } finally {
    await context.close();
    server.kill();
  }
}

// visit goes to the console of a guest.
async function visit(name, options) {
  const {server, home: keys} = await start(desk);
  const home = new URL('/settings/keys', keys).href;
  const {context, page, complaints} = await open({...options, acceptDownloads: true});
  try {
    await embed(page, home, (what) => look(page, `${name}-${what}`));
    await page.goto(home);
    await page.evaluate(axe);
    if (!options.forcedColors) await accents(page); // which the reader's take the place of
    assert.deepEqual(complaints, [], 'the browser complains');
  } finally {
    await context.close();
    server.kill();
  }
}

// The walks share one clipboard and take turns.
let clipboard = Promise.resolve();

// shown submits a form, and returns the secret of the page that answers.
async function shown(page, script, submit) {
  await submit();
  await page.getByRole('heading', {name: 'Copy the secret now'}).waitFor();
  const secret = (await page.locator('#secret').textContent()).trim();
  assert.match(secret, /^svc_live_[0-9A-Za-z]{38}$/);
  if (script) {
    const copied = clipboard.then(async () => {
      await page.getByRole('button', {name: 'Copy', exact: true}).click();
      await page.getByText('Copied', {exact: true}).waitFor();
      assert.equal(await page.evaluate(() => navigator.clipboard.readText()), secret);
    });
    clipboard = copied.catch(() => {});
    await copied;
  }
  return secret;
}

// samples wants one sample in the language that is picked.
async function samples(page) {
  await page.getByRole('radio', {name: 'curl', exact: false}).check();
  await page.locator('summary').nth(1).click();
  assert.equal(await page.locator('.lines:visible').count(), 1);
}

// used waits until the page says that the key has been used.
async function used(page, context, script) {
  const works = /It works: the key was used/;
  if (script) return void await page.getByText(works).waitFor();
  const [tab] = await Promise.all([context.waitForEvent('page'), page.getByRole('link', {name: 'Check again'}).click()]);
  while (!works.test(await tab.textContent('main'))) await tab.getByRole('link', {name: 'Check again'}).click();
  await tab.close();
}

// keyboard goes from the address bar to a new key without a pointer.
async function keyboard() {
  const {context, page} = await open({});
  await signIn(page);
  await page.goto(`${home}/new`);
  await page.keyboard.press('Tab');
  assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Skip to the content');
  await page.keyboard.press('Enter');
  await tabTo(page, 'name');
  await page.keyboard.type('By keyboard');
  await tabTo(page, 'environment');
  await page.keyboard.press('Space');
  await tabTo(page, 'access.tasks');
  await page.keyboard.press('ArrowRight');
  await tabTo(page, 'Create API key');
  await page.keyboard.press('Enter');
  await page.getByRole('heading', {name: 'Copy the secret now'}).waitFor();
  await context.close();
}

try {
  const ways = [['plain', {javaScriptEnabled: false, viewport: {width: 1280, height: 900}}]];
  for (const [width, height] of [[360, 740], [768, 1024], [1280, 900]])
    for (const colorScheme of ['light', 'dark']) ways.push([`${colorScheme}-${width}`, {colorScheme, viewport: {width, height}}]);
  await Promise.all(ways.map(([name, options]) => walk(name, options)));
  await Promise.all(ways.map(([name, options]) => work(name, options)));
  await Promise.all([
    visit('guest', {colorScheme: 'light', viewport: {width: 1280, height: 900}}),
    visit('guest-dark', {colorScheme: 'dark', viewport: {width: 360, height: 740}}),
    visit('forced', {forcedColors: 'active', viewport: {width: 1280, height: 900}}),
    keyboard(),
  ]);
  console.log(`ok: seven walks, by keyboard too; axe found nothing on ${looked} pages`);
} finally {
  await browser.close();
  server.kill();
}
