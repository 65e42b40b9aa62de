// Creates keys in Chromium: signs in, creates, copies, uses, rotates and revokes one, and creates one without a pointer.
import assert from 'node:assert/strict';

async function signIn(page, home, password) {
  await page.goto(`${home}/sign-in`);
  await page.getByLabel('password').fill(password);
  await page.getByRole('button', {name: 'Sign in'}).click();
}

// access picks what a family's scopes allow.
export async function access(page, family, what) {
  await page.getByRole('radiogroup', {name: `Access to ${family}`}).getByRole('radio', {name: what}).check();
}

// unchecked lets a form be sent that the browser would refuse; without script it is sent anyhow.
export async function unchecked(page) {
  await page.locator('form').evaluate((form) => { form.noValidate = true; }).catch(() => {});
}

export async function create({page, context, home, password, script, see, go, options}) {
  const {origin} = new URL(home);
  const status = async (secret) => (await fetch(`${origin}/api/v1/account`, {headers: {Authorization: `Bearer ${secret}`}})).status;
  const wide = options.viewport.width > 1000 && options.colorScheme === 'light'; // the walks share one clipboard

  // shown submits a form, and returns the secret of the page that answers.
  const shown = async (button, way = 'click') => {
    await page.getByRole('button', {name: button})[way]();
    await page.getByRole('heading', {name: 'Copy the secret now'}).waitFor();
    const secret = (await page.locator('#secret').textContent()).trim();
    assert.match(secret, /^svc_live_[0-9A-Za-z]{38}$/);
    if (wide) {
      await context.grantPermissions(['clipboard-read', 'clipboard-write'], {origin});
      await page.getByRole('button', {name: 'Copy', exact: true}).click();
      await page.getByText('Copied', {exact: true}).waitFor();
      assert.equal(await page.evaluate(() => navigator.clipboard.readText()), secret);
    }
    return secret;
  };

  await page.goto(home);
  await see('signed-out');
  await go('link', 'Sign in', 'sign-in');
  await signIn(page, home, password);
  await see('list');

  await go('link', 'Create API key', 'create');
  await page.getByRole('link', {name: 'External worker'}).or(page.getByRole('button', {name: 'External worker'})).click();
  await page.waitForLoadState(); // what follows does not wait
  const picked = await page.locator('.family input:checked').evaluateAll((inputs) => inputs.map(({value}) => value).filter(Boolean).join(' '));
  assert.equal(picked, 'deliverables:write chat:read chat:write');
  await access(page, 'deliverables', 'None');
  await access(page, 'chat', 'None');

  // The server's own refusal, behind the browser's.
  await unchecked(page);
  await page.getByLabel('Name', {exact: true}).fill('Shop');
  await page.getByRole('radio', {name: 'Production'}).first().check();
  await go('button', 'Create API key');
  assert.match(await page.getByRole('alert').textContent(), /Nothing was created/);
  assert.equal(await page.getByLabel('Name', {exact: true}).inputValue(), 'Shop');
  if (script) await page.locator('[role=alert]:focus').waitFor(); // the script sets it
  await see('create-refused');

  await access(page, 'account', 'Read');
  await access(page, 'tasks', 'Both');
  if (script) await finds(page);
  await page.getByLabel('The key expires').selectOption('90');
  const secret = await shown('Create API key', script ? 'dblclick' : 'click');
  await see('secret');
  await page.getByRole('radio', {name: 'curl', exact: false}).check();
  await page.locator('summary').nth(1).click();
  assert.equal(await page.locator('.lines:visible').count(), 1, 'samples in the language that is picked');
  assert.equal(await status(secret), 200);
  await used(page, context, script);
  await see('used');
  assert.ok(!page.url().includes('svc_') && (await context.cookies()).every(({value}) => !value.includes('svc_')));

  await page.reload();
  assert.match(await page.textContent('h1'), /The secret has been shown/);
  assert.doesNotMatch(await page.content(), /svc_live_[0-9A-Za-z]{38}/);
  await see('replay');

  await go('link', /show all keys/i);
  assert.equal(await page.getByRole('link', {name: 'Shop'}).count(), 1, 'a reload made another key');
  await go('link', 'Shop', 'key');
  for (const [link, what] of [['Renew', 'renew'], ['Create one like it', 'like']]) {
    await go('link', link, what);
    await page.goBack();
  }
  await go('link', 'Rotate', 'rotate');
  await page.getByRole('radio', {name: 'At once'}).check();
  const next = await shown('Rotate');
  await see('rotated');
  assert.notEqual(next, secret);
  assert.deepEqual([await status(secret), await status(next)], [401, 200], 'the old key and the new one');

  await go('link', /show all keys/i);
  await go('link', 'Shop');
  await go('link', 'Revoke', 'revoke');
  await go('button', 'Revoke for good');
  await page.getByText(/was revoked on/).first().waitFor();
  await see('revoked');
  assert.equal(await status(next), 401, 'the revoked key');
  await page.goto(home);
  await go('link', 'Audit', 'audit');
  await page.goto(`${home}?status=expired`);
  await see('none');
}

// finds searches the scopes, and reads the summary.
async function finds(page) {
  const search = page.getByRole('searchbox');
  const sum = page.locator('[data-sum="scopes"] code');
  await search.fill('Cancel');
  assert.deepEqual(await page.locator('.family:visible .head-of').allTextContents(), ['tasks']);
  await search.fill('no such');
  await page.getByText('No scope has this').waitFor();
  await search.fill('');
  assert.deepEqual(await sum.allTextContents(), ['account:read', 'tasks:read', 'tasks:write']);
  for (const [button, count] of [['All', 16], ['Read only', 7], ['None', 0]]) {
    await page.getByRole('button', {name: button, exact: true}).click();
    assert.equal(await sum.count(), count, button);
  }
  await access(page, 'account', 'Read');
  await access(page, 'tasks', 'Read');
}

// used waits until the page says that the key has been used.
async function used(page, context, script) {
  const works = /It works: the key was used/;
  if (script) return page.getByText(works).waitFor();
  const again = (tab) => tab.getByRole('link', {name: 'Check again'}).click();
  const [tab] = await Promise.all([context.waitForEvent('page'), again(page)]);
  while (!works.test(await tab.textContent('main'))) await again(tab);
  await tab.close();
}

// keyboard goes from the address bar to a new key without a pointer.
export async function keyboard({page, home, password}) {
  await signIn(page, home, password);
  await page.goto(`${home}/new`);
  await page.keyboard.press('Tab');
  assert.equal(await page.evaluate(() => document.activeElement.textContent), 'Skip to the content');
  await page.keyboard.press('Enter');
  await tabTo(page, 'name');
  await page.keyboard.type('By keyboard');
  for (const [field, key] of [['environment', 'Space'], ['access.tasks', 'ArrowRight'], ['Create API key', 'Enter']]) {
    await tabTo(page, field);
    await page.keyboard.press(key);
  }
  await page.getByRole('heading', {name: 'Copy the secret now'}).waitFor();
}

// tabTo presses Tab until an element has the focus that has this text or name, and wants each on the way to show that it has it.
async function tabTo(page, what) {
  for (let i = 0; i < 60; i++) {
    await page.keyboard.press('Tab');
    const at = await page.evaluate(() => {
      const e = document.activeElement;
      const text = (e.labels?.[0]?.textContent ?? e.ariaLabel ?? e.textContent).trim();
      return {text, name: e.name, outline: getComputedStyle(e).outlineStyle};
    });
    assert.notEqual(at.outline, 'none', `${at.text} does not show that it is focused`);
    if (at.text === what || at.name === what) return;
  }
  assert.fail(`Tab does not reach ${what}`);
}
