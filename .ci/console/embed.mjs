// The console in other dashboards, in Chromium: a brand, 60 scopes, a prefix that a proxy takes off, a frame.
import assert from 'node:assert/strict';
import axe from 'axe-core';
import {access} from './create.mjs';

// embed begins at the console of a desk's guest.
export async function embed({page, home: desk, see, options}) {
  const home = new URL('/settings/keys', desk).href;
  const button = (name, where = page) => where.getByRole('button', {name, exact: true});
  const make = async (where, name, environment) => {
    await where.getByLabel('Name', {exact: true}).fill(name);
    await where.getByRole('radio', {name: environment}).check();
    await button('Create API key', where).last().click();
    await where.getByRole('heading', {name: 'Copy the secret now'}).waitFor();
  };
  const download = async (where) => {
    const [file] = await Promise.all([page.waitForEvent('download'), button('Download .env', where).click()]);
    return file;
  };

  await page.clock.install();
  await page.goto(home);
  assert.match(await page.title(), /· Northwind$/);
  assert.ok(await page.evaluate(() => document.querySelector('.brand img').naturalWidth > 0), 'the logo');
  const create = page.getByRole('link', {name: /^Create/});
  assert.equal(await create.count(), 1, 'ways to create a key on the empty page');
  await see('empty');
  await create.click();
  assert.equal(page.url(), home + '/new');
  await see('sixty');
  for (const all of ['None', 'All']) {
    await button(all).click();
    await inSight(page, button('Create API key'), `${all} of the scopes`);
  }
  await see('all-sixty');
  await button('None').click();
  await page.getByRole('searchbox').fill('payout');
  assert.equal(await page.locator('.family:visible').count(), 1);
  await access(page, 'payouts', 'Both');
  await page.getByRole('searchbox').fill('');
  const box = await page.locator('.families').boundingBox();
  assert.ok(box.height < 700, `60 scopes take ${box.height}`);
  await access(page, 'orders', 'Read');
  await page.getByRole('checkbox', {name: 'orders:export'}).check();
  await make(page, 'Warehouse', 'Sandbox');
  const secret = await page.locator('#secret').textContent();
  assert.match(secret, /^north_test_[0-9A-Za-z]{38}$/);
  await see('branded');

  // The page stops asking for the first use after ten minutes, and offers to ask once more.
  const again = page.getByRole('link', {name: 'Check again'});
  assert.equal(await again.isVisible(), false);
  let asked = 0;
  page.on('request', (request) => { if (request.url().endsWith('/used')) asked++; });
  await page.clock.fastForward(660_000);
  await again.waitFor();
  const before = asked;
  await page.clock.fastForward(660_000);
  assert.equal(asked, before, 'the page asks on');

  const file = await download(page);
  let text = '';
  for await (const chunk of await file.createReadStream()) text += chunk;
  assert.equal(text, `NORTH_API_KEY=${secret}\n`);
  assert.match(file.suggestedFilename(), /\.env$/);
  await page.getByRole('link', {name: /show all keys/}).click();
  assert.equal(page.url(), home + '/');
  await page.getByRole('link', {name: 'Warehouse', exact: true}).first().click();
  assert.match(page.url(), /\/settings\/keys\/key_[0-9a-z]+$/);
  await see('branded-key');

  // In a frame, without a header.
  await page.goto(new URL('/dashboard', home).href);
  const frame = page.frameLocator('iframe');
  await frame.getByRole('link', {name: 'Create API key'}).first().click();
  await button('Read only', frame).click();
  assert.equal(await frame.locator('header').count(), 0);
  await make(frame, 'Framed', 'Production');
  await download(frame);
  await frame.getByRole('link', {name: /show all keys/}).click();
  await frame.getByRole('link', {name: 'Framed', exact: true}).waitFor();

  await page.goto(home);
  if (!options.forcedColors) await accents(page); // which the reader's take the place of
}

// inSight scrolls a page from its top to its end, and wants to see all of a button on the way, above all else.
async function inSight(page, button, what) {
  const {end, step} = await page.evaluate(() => ({end: document.documentElement.scrollHeight - innerHeight, step: innerHeight / 3}));
  assert.ok(end > step, `${what}: the page scrolls by ${end}`);
  for (let y = 0; y < end + step; y += step) {
    await page.evaluate((y) => scrollTo({top: y, behavior: 'instant'}), y);
    const seen = await button.evaluate((button) => {
      const {left, right, top, bottom} = button.getBoundingClientRect();
      const hit = [[left + 2, top + 8], [right - 2, bottom - 8]].map(([x, y]) => document.elementFromPoint(x, y));
      return {top, bottom, clear: hit.every((e) => e === button)};
    });
    assert.ok(seen.clear, `${what}, scrolled by ${y} of ${end}: the button is at ${seen.top} to ${seen.bottom}`);
  }
  await page.evaluate(() => scrollTo(0, 0));
}

// accents lets axe judge a link on each ground of a page, with any accent.
async function accents(page) {
  await page.evaluate(axe.source);
  const illegible = await page.evaluate(async () => {
    for (const ground of ['--surface', '--ground', '--accent-soft']) {
      const link = document.body.appendChild(document.createElement('p'));
      Object.assign(link, {className: 'probe', textContent: ground});
      Object.assign(link.style, {color: 'var(--link)', background: `var(${ground})`});
    }
    const {style} = document.documentElement;
    const found = [];
    for (const accent of ['#000000', '#ffffff', '#ffcc00', '#e11d48', '#777777', '#00ff00', '#0000ff', '#ff00ff', '#00ffff', '#e57300']) {
      for (const scheme of ['light', 'dark']) {
        style.setProperty('color-scheme', scheme);
        style.setProperty('--accent-light', accent);
        style.setProperty('--accent-dark', accent);
        const {passes} = await window.axe.run('.probe', {runOnly: ['color-contrast']});
        if (passes[0]?.nodes.length !== 3) found.push(`${accent} in ${scheme}`);
      }
    }
    return found;
  });
  assert.deepEqual(illegible, [], 'accents with which a link cannot be read');
}
