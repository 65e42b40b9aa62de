// The console in other dashboards, in Chromium: a brand, 60 scopes, a prefix that a proxy takes off, a frame.
import assert from 'node:assert/strict';

// embed walks with a page from home, which ends in no slash; see takes a look at the page as it is then.
export async function embed(page, home, see) {
  await page.clock.install();
  await page.goto(home);
  assert.match(await page.title(), /· Northwind$/);
  assert.equal(await page.evaluate(() => document.querySelector('.brand img').naturalWidth > 0), true, 'the logo');
  const create = page.getByRole('link', {name: /^Create/});
  assert.equal(await create.count(), 1, 'ways to create a key on the empty page');
  await see('empty');
  await create.click();
  assert.equal(page.url(), home + '/new');
  await see('sixty');
  for (const button of ['None', 'All']) {
    await page.getByRole('button', {name: button, exact: true}).click();
    await inSight(page, page.getByRole('button', {name: 'Create API key'}), `${button} of the scopes`);
  }
  await see('all-sixty');
  await page.getByRole('button', {name: 'None', exact: true}).click();
  await page.getByRole('searchbox').fill('payout');
  assert.equal(await page.locator('.family:visible').count(), 1);
  await page.getByRole('radiogroup', {name: 'Access to payouts'}).getByRole('radio', {name: 'Both'}).check();
  await page.getByRole('searchbox').fill('');
  const box = await page.locator('.families').boundingBox();
  assert.ok(box.height < 700, `60 scopes take ${box.height}`);
  await page.getByRole('radiogroup', {name: 'Access to orders'}).getByRole('radio', {name: 'Read'}).check();
  await page.getByRole('checkbox', {name: 'orders:export'}).check();
  await page.getByLabel('Name', {exact: true}).fill('Warehouse');
  await page.getByRole('radio', {name: 'Sandbox'}).check();
  await page.getByRole('button', {name: 'Create API key'}).last().click();
  await page.getByRole('heading', {name: 'Copy the secret now'}).waitFor();
  const secret = await page.locator('#secret').textContent();
  assert.match(secret, /^north_test_[0-9A-Za-z]{38}$/);
  await see('branded');

  // The page stops asking for the first use after ten minutes, and offers to ask once more.
  assert.equal(await page.getByRole('link', {name: 'Check again'}).isVisible(), false);
  let asked = 0;
  page.on('request', (request) => { if (request.url().endsWith('/used')) asked++; });
  await page.clock.fastForward(660_000);
  await page.getByRole('link', {name: 'Check again'}).waitFor();
  const before = asked;
  await page.clock.fastForward(660_000);
  assert.equal(asked, before, 'the page asks on');

  const [download] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', {name: 'Download .env'}).click()]);
  let text = '';
  for await (const chunk of await download.createReadStream()) text += chunk;
  assert.equal(text, `NORTH_API_KEY=${secret}\n`);
  assert.match(download.suggestedFilename(), /\.env$/);
  await page.getByRole('link', {name: /show all keys/}).click();
  assert.equal(page.url(), home + '/');
  await page.getByRole('link', {name: 'Warehouse', exact: true}).first().click();
  assert.match(page.url(), /\/settings\/keys\/key_[0-9a-z]+$/);
  await see('branded-key');

  // In a frame, without a header.
  await page.goto(new URL('/dashboard', home).href);
  const frame = page.frameLocator('iframe');
  await frame.getByRole('link', {name: 'Create API key'}).first().click();
  await frame.getByLabel('Name', {exact: true}).fill('Framed');
  assert.equal(await frame.locator('header').count(), 0);
  await frame.getByRole('radio', {name: 'Production'}).check();
  await frame.getByRole('button', {name: 'Read only'}).click();
  await frame.getByRole('button', {name: 'Create API key'}).last().click();
  await frame.getByRole('heading', {name: 'Copy the secret now'}).waitFor();
  await Promise.all([page.waitForEvent('download'), frame.getByRole('button', {name: 'Download .env'}).click()]);
  await frame.getByRole('link', {name: /show all keys/}).click();
  await frame.getByRole('link', {name: 'Framed', exact: true}).waitFor();
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

// accents says whether links can be read on a page with any accent, as computed by the browser.
export async function accents(page) {
  const worst = await page.evaluate(() => {
    const context = Object.assign(document.createElement('canvas'), {width: 1, height: 1}).getContext('2d', {willReadFrequently: true});
    const luminance = (color) => {
      context.fillStyle = color;
      context.fillRect(0, 0, 1, 1);
      return [...context.getImageData(0, 0, 1, 1).data].slice(0, 3).map((v) => v / 255)
        .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    };
    const probe = document.body.appendChild(document.createElement('span'));
    const found = [];
    for (const accent of ['#000000', '#ffffff', '#ffcc00', '#e11d48', '#777777', '#00ff00', '#0000ff', '#ff00ff', '#00ffff', '#e57300']) {
      for (const scheme of ['light', 'dark']) {
        const root = document.documentElement.style;
        root.setProperty('color-scheme', scheme);
        root.setProperty('--accent-light', accent);
        root.setProperty('--accent-dark', accent);
        probe.style.color = 'var(--link)';
        const link = luminance(getComputedStyle(probe).color);
        for (const ground of ['--surface', '--ground', '--accent-soft']) {
          probe.style.color = `var(${ground})`;
          const under = luminance(getComputedStyle(probe).color);
          found.push([(Math.max(link, under) + 0.05) / (Math.min(link, under) + 0.05), accent, scheme, ground]);
        }
      }
    }
    return found.sort(([a], [b]) => a - b)[0];
  });
  assert.ok(worst[0] >= 4.5, `a link has a contrast of ${worst}`);
}
