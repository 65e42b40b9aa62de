// Operates keys in Chromium: searches, filters, edits, suspends, rotates and revokes. Each walk has a desk of its own.
import assert from 'node:assert/strict';
import {access, unchecked} from './create.mjs';

// operate begins at the list of a desk.
export async function operate({page, home, script, see, go, options}) {
  if (script) await page.clock.install();
  const rows = () => page.locator('[data-results] > .keys tbody tr');
  const search = page.getByRole('searchbox');
  const said = (words) => page.getByText(words, {exact: true}).filter({visible: true}).first().waitFor();
  const find = async (what, words) => { // with script the list follows what is typed, without it needs Enter
    await search.fill(what);
    if (!script) await page.keyboard.press('Enter');
    await said(words);
  };

  await page.goto(home);
  assert.equal(await rows().count(), 25, 'live keys');
  if (options.viewport.width > 1000) {
    const last = await rows().nth(24).boundingBox();
    assert.ok(last.y + last.height <= 900, `25 keys end at ${last.y + last.height}`);
    assert.ok(last.height < 30, `a key takes ${last.height}`);
  }
  await see('keys');
  assert.equal(await page.getByText('Pilot 2024').isVisible(), false, 'an ended key is behind the fold');
  await page.locator('summary').click();
  assert.ok(await page.getByText('Pilot 2024').isVisible(), 'the fold opens');

  await find('Label printer', '2 keys');
  assert.equal(await rows().count(), 2);
  assert.match(page.url(), /\?q=Label\+printer/);
  if (script) assert.equal(await page.locator('p[data-said]').textContent(), '2 keys', 'a screen reader is told');
  await find('no such name', 'No such keys');
  await see('no-match');
  if (script) {
    const sent = [];
    page.on('request', (request) => sent.push(request.url()));
    await search.fill(`svc_live_${'a'.repeat(38)}`);
    await page.waitForURL(/\?q=aaaa$/);
    assert.ok(sent.length > 0 && !sent.some((url) => url.includes('a'.repeat(5))), 'a secret is searched by its end');
  }
  await search.fill('');
  await page.getByLabel('Environment').selectOption('sandbox');
  if (!script) await page.getByRole('button', {name: 'Search'}).click();
  await said('5 keys');
  await page.goto(home);

  // Children stand with their parent.
  assert.match(await page.locator('.folds').textContent(), /^Partner: [^]* 3 children$/);
  await page.locator('.folds').click();
  await see('parent');
  await go('link', 'See all 3, and those that have ended', 'children');
  assert.equal(await rows().count(), 3, 'children');
  await go('link', 'Run 2', 'child');
  await page.goto(home);

  // The strip, and scopes that nothing needs.
  await go('link', /Scopes unused/, 'care');
  await go('link', 'Nightly import, Frankfurt', 'key');
  const old = page.url();
  await page.getByText('As a table').click();
  assert.ok(await page.getByRole('rowheader').count() > 25, 'the table of the chart');
  await go('button', 'Take it away');
  await page.getByText('The scopes are taken away.').waitFor();
  await see('narrowed');
  assert.doesNotMatch(await page.locator('.granted').first().textContent(), /account:read/);

  await go('link', 'Edit', 'edit');
  await page.getByLabel('Name', {exact: true}).fill('Nightly import, Oslo');
  await access(page, 'tasks', 'Read');
  if (script) assert.equal(await page.locator('[data-sum="scopes"] del').textContent(), 'tasks:write');
  await page.getByLabel('The key expires').selectOption('date');
  await page.getByLabel('Last day').fill('2099-12-31');
  await go('button', 'Save');
  await page.getByText('Your changes are saved.').waitFor();
  await go('link', 'Edit');
  await unchecked(page);
  await access(page, 'tasks', 'None');
  await go('button', 'Save');
  await page.getByRole('alert').waitFor();
  await see('edit-refused');
  await page.goto(old);

  await go('link', 'Suspend', 'suspend');
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
  const {status} = await fetch(new URL(`/use/${old.split('/').pop()}`, home), {method: 'POST'});
  assert.equal(status, 200);
  if (script) await page.clock.runFor(11_000);
  else await page.reload();
  await page.getByRole('heading', {name: 'The replaced key is still in use'}).waitFor();
  assert.match(await page.locator('.watch').textContent(), /just now from 10\.2\.0\.7/);
  if (script) assert.equal(await page.locator('p[data-said]').textContent(), 'The replaced key is still in use');
  await see('in-use');
  await page.locator('dd a').filter({hasText: 'svc_live_'}).click();
  await see('successor');
  await page.goto(home);
  await go('link', 'Invoices to DATEV', 'quiet');

  await page.goto(old);
  await go('link', 'Revoke', 'revoke');
  await page.locator('#note').fill('the pilot is over');
  await page.getByRole('radio', {name: 'It has leaked, or may have'}).check();
  assert.ok(await page.locator('#note').isHidden(), 'the field of a reason that is not kept');
  await go('button', 'Revoke for good');
  await page.getByText('This key was replaced, and revoked on').waitFor();
  await page.goto(`${home}?q=oslo`);
  assert.equal(await page.locator('.ended tbody tr').filter({visible: true}).count(), 1, 'a search opens the fold');
}
