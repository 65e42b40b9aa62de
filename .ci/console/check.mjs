// Walks through the consoles of the example and of the desk in Chromium, with script and without, and lets axe look at each page.
//
//   node check.mjs EXAMPLE DESK [PICTURES]
//
// EXAMPLE and DESK are the built programs; PICTURES a folder for screenshots, made if need be.
import assert from 'node:assert/strict';
import {spawn} from 'node:child_process';
import {createInterface} from 'node:readline';
import axe from 'axe-core';
import {chromium} from 'playwright-core';
import {create, keyboard} from './create.mjs';
import {embed} from './embed.mjs';
import {operate} from './operate.mjs';

const [example, desk, pictures] = process.argv.slice(2);
const patience = 300_000; // ms; only what hangs takes that long
const browser = await chromium.launch({
  timeout: patience,
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
});

// start runs a program on a free port and returns the address of its console.
async function start(program) {
  const server = spawn(program, ['-addr', '127.0.0.1:0'], {stdio: ['ignore', 'pipe', 'ignore']});
  for await (const line of createInterface({input: server.stdout})) {
    const found = /^Console at (\S+)(?: with the password (\S+))?/.exec(line);
    if (found) return {server, home: found[1], password: found[2]};
  }
  throw new Error('the program did not say where its console is');
}

let looked = 0;

// look lets axe judge a page with the pointer on its first button, and takes its picture.
async function look(page, name) {
  await page.waitForLoadState();
  const box = await page.locator('.button.primary:visible').first().boundingBox({timeout: 100}).catch(() => null);
  if (box) {
    await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
    await page.waitForTimeout(200); // the button changes in 120 ms
  }
  await page.evaluate(axe.source);
  const {violations} = await page.evaluate(() => window.axe.run(document, {resultTypes: ['violations']}));
  const said = violations.map(({id, nodes}) => `${id}: ${nodes.map((n) => `${n.html} ${n.failureSummary}`).join('\n  ')}`).join('\n');
  assert.equal(violations.length, 0, `${name}: axe finds\n${said}`);
  const {scroll, client} = await page.evaluate(() => ({scroll: document.documentElement.scrollWidth, client: document.documentElement.clientWidth}));
  assert.ok(scroll <= client, `${name}: the page is ${scroll} wide in a window of ${client}`);
  looked++;
  if (pictures) await page.screenshot({path: `${pictures}/${name}.png`, fullPage: true});
}

// visit takes a walk through the console of a program of its own. The browser must not complain.
async function visit(walk, program, name, options) {
  const {server, home, password} = await start(program);
  const context = await browser.newContext({locale: 'en-GB', timezoneId: 'UTC', ...options});
  const page = await context.newPage();
  page.setDefaultTimeout(patience);
  const complaints = [];
  page.on('console', (message) => {
    // The refusals that this walk provokes are told on the console too.
    if (message.type() === 'error' && !/status of 4\d\d/.test(message.text())) complaints.push(message.text());
  });
  page.on('pageerror', (error) => complaints.push(String(error)));
  const script = options.javaScriptEnabled !== false;
  const see = async (what) => { if (script) await look(page, `${name}-${what}`); };
  const go = async (role, name, what) => {
    await page.getByRole(role, {name, exact: true}).first().click();
    await page.waitForLoadState();
    if (what) await see(what);
  };
  try {
    await walk({page, context, home, password, script, see, go, options});
    assert.deepEqual(complaints, [], 'the browser complains');
  } finally {
    await context.close();
    server.kill();
  }
}

try {
  const wide = {width: 1280, height: 900};
  const ways = [['plain', {javaScriptEnabled: false, viewport: wide}]];
  for (const viewport of [{width: 360, height: 740}, {width: 768, height: 1024}, wide])
    for (const colorScheme of ['light', 'dark'])
      // No rule for colours asks for the width: without pictures each width but the last is seen in one scheme.
      if (pictures || viewport === wide || (colorScheme === 'dark') === (viewport.width === 360))
        ways.push([`${colorScheme}-${viewport.width}`, {colorScheme, viewport}]);
  await Promise.all(ways.map(([name, options]) => visit(create, example, name, options)));
  await Promise.all(ways.map(([name, options]) => visit(operate, desk, name, options)));
  await Promise.all([
    visit(embed, desk, 'guest', {colorScheme: 'light', viewport: wide}),
    visit(embed, desk, 'guest-dark', {colorScheme: 'dark', viewport: {width: 360, height: 740}}),
    visit(embed, desk, 'forced', {forcedColors: 'active', viewport: wide}),
    visit(keyboard, example, 'keyboard', {}),
  ]);
  console.log(`ok: ${ways.length} ways to walk, and by keyboard; axe found nothing on ${looked} pages`);
} finally {
  await browser.close();
}
