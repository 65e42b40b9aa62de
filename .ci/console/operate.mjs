// Operates keys in Chromium: searches, filters, edits, suspends, rotates and revokes. Each walk has a desk of its own.
import assert from 'node:assert/strict';

// operate walks with a page at home, the list of a desk; see takes a look at the page as it is then.
export async function operate(page, home, script, wide, see) {
  const rows = () => page.locator('[data-results] > .keys tbody tr');
  const go = async (role, name) => {
    await page.getByRole(role, {name, exact: true}).first().click();
    await page.waitForLoadState();
  };

  const access = (what) => page.getByRole('radiogroup', {name: 'Access to tasks'}).getByRole('radio', {name: what}).check();

  await page.goto(home);
  assert.equal(await rows().count(), 25, 'live keys');
  if (wide) {
    const last = await rows().nth(24).boundingBox();
    assert.ok(last.y + last.height <= 900, `25 keys end at ${last.y + last.height}`);
    assert.ok(last.height < 30, `a key takes ${last.height}`);
  }
  await see('keys');
  assert.equal(await page.getByText('Pilot 2024').isVisible(), false, 'an ended key is behind the fold');
  await page.locator('summary').click();
  assert.ok(await page.getByText('Pilot 2024').isVisible(), 'the fold opens');

  // With script the list follows what is typed, without it needs Enter or the button.
  await page.getByRole('searchbox').fill('Label printer');
  if (!script) await page.keyboard.press('Enter');
  await page.getByText('2 keys', {exact: true}).filter({visible: true}).first().waitFor();
  assert.equal(await rows().count(), 2);
  assert.match(page.url(), /\?q=Label\+printer/);
  if (script) assert.equal(await page.locator('p[data-said]').textContent(), '2 keys', 'a screen reader is told');
  await page.getByRole('searchbox').fill('no such name');
  if (!script) await page.keyboard.press('Enter');
  await page.getByText('No such keys').filter({visible: true}).first().waitFor();
  await see('no-match');
  if (script) {
    const sent = [];
    page.on('request', (request) => sent.push(request.url()));
    await page.getByRole('searchbox').fill(`svc_live_${'a'.repeat(38)}`);
    await page.waitForURL(/\?q=aaaa$/);
    assert.ok(sent.length > 0 && !sent.some((url) => url.includes('a'.repeat(5))), 'a secret is searched by its end');
  }
  await page.getByRole('searchbox').fill('');
  await page.getByLabel('Environment').selectOption('sandbox');
  if (!script) await page.getByRole('button', {name: 'Search'}).click();
  await page.getByText('5 keys', {exact: true}).filter({visible: true}).first().waitFor();
  await page.goto(home);

  // Children stand with their parent.
  assert.match(await page.locator('.folds').textContent(), /^Partner: [^]* 3 children$/);
  await page.locator('.folds').click();
  await see('parent');
  await go('link', 'See all 3, and those that have ended');
  assert.equal(await rows().count(), 3, 'children');
  await see('children');
  await go('link', 'Run 2');
  await see('child');
  await page.goto(home);

  // The strip, and scopes that nothing needs.
  await page.getByRole('link', {name: /Scopes unused/}).click();
  await page.waitForLoadState();
  await see('care');
  await go('link', 'Nightly import, Frankfurt');
  const old = page.url();
  const id = old.split('/').pop();
  await see('key');
  await page.getByText('As a table').click();
  assert.ok(await page.getByRole('rowheader').count() > 25, 'the table of the chart');
  await page.getByRole('button', {name: 'Take it away'}).click();
  await page.getByText('The scopes are taken away.').waitFor();
  await see('narrowed');
  assert.doesNotMatch(await page.locator('.granted').first().textContent(), /account:read/);

  await go('link', 'Edit');
  await see('edit');
  await page.getByLabel('Name', {exact: true}).fill('Nightly import, Oslo');
  await access('Read');
  if (script) assert.equal(await page.locator('[data-sum="scopes"] del').textContent(), 'tasks:write');
  await page.getByLabel('The key expires').selectOption('date');
  await page.getByLabel('Last day').fill('2099-12-31');
  await go('button', 'Save');
  await page.getByText('Your changes are saved.').waitFor();
  await go('link', 'Edit');
  await page.locator('form').evaluate((form) => { form.noValidate = true; }).catch(() => {});
  await access('None');
  await go('button', 'Save');
  await page.getByRole('alert').waitFor();
  await see('edit-refused');
  await page.goto(old);

  await go('link', 'Suspend');
  await see('suspend');
  await page.getByLabel('Why, if others should know').fill('who runs this?');
  await go('button', 'Suspend');
  await page.getByText('This key is suspended.').waitFor();
  await see('suspended');
  await go('button', 'Resume');
  await page.getByText('The key works again.').waitFor();

  await go('link', 'Rotate');
  await page.getByRole('radio', {name: 'After 7 days'}).check();
  await go('button', 'Rotate');
  await page.getByRole('heading', {name: 'Copy the secret now'}).waitFor();
  await page.goto(old);
  await see('replaced');
  const used = await fetch(new URL(`/use/${id}`, home), {method: 'POST'});
  assert.equal(used.status, 200);
  if (script) await page.clock.runFor(11_000);
  else await page.reload();
  await page.getByRole('heading', {name: 'The replaced key is still in use'}).waitFor();
  assert.match(await page.locator('.watch').textContent(), /just now from 10\.2\.0\.7/);
  if (script) assert.equal(await page.locator('p[data-said]').textContent(), 'The replaced key is still in use');
  await see('in-use');
  await page.locator('dd a').filter({hasText: 'svc_live_'}).click();
  await see('successor');
  await page.goto(home);
  await go('link', 'Invoices to DATEV');
  await see('quiet');

  await page.goto(old);
  await go('link', 'Revoke');
  await see('revoke');
  await page.locator('#note').fill('the pilot is over');
  await page.getByRole('radio', {name: 'It has leaked, or may have'}).check();
  assert.ok(await page.locator('#note').isHidden(), 'the field of a reason that is not kept');
  await go('button', 'Revoke for good');
  await page.getByText('This key was replaced, and revoked on').waitFor();
  await page.goto(`${home}?q=oslo`);
  assert.equal(await page.locator('.ended tbody tr').filter({visible: true}).count(), 1, 'a search opens the fold');
}

// tabTo presses Tab until an element has the focus that has this text or name, and wants each on the way to show that it has it.
export async function tabTo(page, what) {
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
