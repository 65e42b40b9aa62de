// Comforts on top of pages that work without any script.
'use strict';

const all = (selector) => Array.from(document.querySelectorAll(selector));

// A text is copied in one click, and selected when it is focused or when the clipboard is out of reach.
const select = (element) => {
  const range = document.createRange();
  range.selectNodeContents(element);
  const selection = window.getSelection();
  selection.removeAllRanges();
  selection.addRange(range);
};
for (const button of all('[data-copy]')) {
  const source = document.getElementById(button.dataset.copy);
  const status = button.parentElement.querySelector('[data-copied]');
  source.addEventListener('focus', () => select(source));
  button.hidden = false;
  button.addEventListener('click', async () => {
    try {
      await navigator.clipboard.writeText(source.textContent);
      status.textContent = 'Copied';
    } catch {
      select(source);
      status.textContent = 'Selected: press Ctrl+C or ⌘C';
    }
  });
}

// The secret as a file, which the browser makes from the page.
for (const button of all('[data-save]')) {
  const name = button.dataset.save;
  button.hidden = false;
  button.addEventListener('click', () => {
    const file = new Blob([`${name}=${document.getElementById('secret').textContent}\n`], {type: 'text/plain'});
    const link = Object.assign(document.createElement('a'), {href: URL.createObjectURL(file), download: `${name.toLowerCase()}.env`});
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  });
}

// The page with a secret waits for the key's first use: for ten minutes, while somebody can see it.
const wait = document.querySelector('[data-wait]');
if (wait) {
  const end = Date.now() + 600_000;
  const ask = async () => {
    const response = document.hidden ? undefined : await fetch(wait.dataset.wait).catch(() => undefined);
    const page = response?.ok && new DOMParser().parseFromString(await response.text(), 'text/html');
    const done = page && page.querySelector('[data-used].done');
    if (done) document.querySelector('[data-used]').replaceWith(done);
    wait.hidden = done || Date.now() < end && !(response?.status < 500 && !response.ok);
    if (wait.hidden && !done) setTimeout(ask, 3000);
  };
  wait.hidden = true;
  document.querySelector('[data-used]').classList.add('waiting');
  setTimeout(ask, 3000);
}

// Presets pick scopes in place. Of what a family offers together, the most that is wanted is picked.
const form = document.querySelector('form.split');
const inputs = all('.family input');
const names = (input) => input.value.split(' ').filter(Boolean);
const pick = (wanted) => {
  for (const input of inputs) {
    if (names(input).every(wanted)) input.checked = input.type === 'radio' || wanted(input.value);
    else if (input.type === 'checkbox') input.checked = false;
  }
  form.dispatchEvent(new Event('change'));
};
for (const button of all('[data-preset]')) {
  const preset = button.dataset.preset.split(' ');
  button.addEventListener('click', (event) => {
    event.preventDefault();
    pick((name) => preset.includes(name));
  });
}
for (const button of all('[data-pick]')) {
  button.hidden = false;
  button.addEventListener('click', () => pick((name) => name.endsWith(button.dataset.pick)));
}

// The families that a search finds. What is picked elsewhere stays picked.
for (const label of all('[data-search]')) {
  const search = label.querySelector('input');
  const families = all('.family');
  label.hidden = families.length < 8;
  search.addEventListener('keydown', (event) => { if (event.key === 'Enter') event.preventDefault(); });
  search.addEventListener('input', () => {
    const wanted = search.value.trim().toLowerCase();
    for (const family of families) family.hidden = !family.textContent.toLowerCase().includes(wanted);
    const found = families.filter((family) => !family.hidden).length;
    document.querySelector('[data-found]').textContent = wanted && (found ? `${found} of ${families.length} found` : 'No scope has this in its name or meaning.');
  });
}

// The date goes with "On a date".
const kind = document.getElementById('expiry-kind');
const date = document.getElementById('expires-on');
if (kind && date) {
  const follow = () => {
    const wanted = kind.value === 'date';
    date.closest('[data-date]').hidden = !wanted;
    date.required = wanted;
    if (!wanted) date.value = '';
  };
  if (date.value) kind.value = 'date';
  kind.addEventListener('change', follow);
  follow();
}

// The summary follows the form.
const summary = document.querySelector('[data-summary]');
if (summary) {
  const show = (name, ...nodes) => summary.querySelector(`[data-sum="${name}"]`)?.replaceChildren(...nodes);
  const chip = (name) => Object.assign(document.createElement('code'), {className: 'scope', textContent: name});
  const now = [...summary.querySelector('[data-sum="ends"]').childNodes];
  const lost = (name) => Object.assign(document.createElement('del'), {className: 'scope', textContent: name});
  const follow = () => {
    const scopes = inputs.filter((input) => input.checked).flatMap(names);
    show('name', form.elements.name.value.trim() || '–');
    show('environment', form.querySelector('[name="environment"]:checked')?.dataset.name ?? '–');
    const day = date.valueAsDate?.toLocaleDateString(undefined, {dateStyle: 'long', timeZone: 'UTC'});
    show('ends', ...(kind.value === 'same' ? now : [kind.value === 'date' ? day ?? '–' : kind.selectedOptions[0].text]));
    const gone = form.elements.version ? new Set(inputs.flatMap(names)).difference(new Set(scopes)) : [];
    show('scopes', ...(scopes.length ? scopes.map(chip) : ['None picked']), ...Array.from(gone, lost));
    summary.tabIndex = summary.scrollHeight > summary.clientHeight ? 0 : -1; // for those who scroll by keyboard
  };
  summary.hidden = false;
  form.addEventListener('input', follow);
  form.addEventListener('change', follow);
  window.addEventListener('pageshow', follow);
}

// A second click would replace the page with the secret by one that says it has been shown.
for (const form of all('form[data-once]')) {
  let sent = false;
  form.addEventListener('submit', (event) => {
    if (sent) event.preventDefault();
    sent = true;
  });
  window.addEventListener('pageshow', () => { sent = false; });
}

// Times are in UTC; the reader's own are a pointer away.
const tellLocal = () => {
  for (const time of all('time[datetime]')) {
    const local = new Date(time.dateTime).toLocaleString(undefined, {dateStyle: 'medium', timeStyle: 'short'});
    time.title = `${local}, your time`;
  }
};
tellLocal();

// renew puts parts of another page in place of those of this one, and says in data-said what they say of themselves. It
// throws when the other page has no such part.
const renew = async (address, parts, late = () => false) => {
  const response = await fetch(address);
  const page = new DOMParser().parseFromString(await response.text(), 'text/html');
  if (late()) return response;
  const fresh = page.querySelectorAll(parts);
  all(parts).forEach((old, i) => {
    const {say} = fresh[i].dataset;
    if (say !== old.dataset.say) document.querySelector('[data-said]').textContent = say;
    if (fresh[i].innerHTML !== old.innerHTML && !old.contains(document.activeElement)) old.replaceWith(fresh[i]);
  });
  tellLocal();
  return response;
};

// The list follows its filters while they change.
const filters = document.querySelector('[data-filters]');
if (filters) {
  filters.querySelector('button').hidden = true;
  let [wait, turn] = [0, 0];
  const follow = async () => {
    const mine = ++turn;
    const {q} = filters.elements;
    if (/^\s*\w{40,}\s*$/.test(q.value)) q.value = q.value.trim().slice(-4); // an address is no place for a secret
    const address = new URL(filters.action);
    address.search = new URLSearchParams([...new FormData(filters)].filter(([, value]) => value));
    try {
      const {redirected, url} = await renew(address, '[data-results]', () => mine !== turn);
      if (mine !== turn) return;
      history.replaceState(null, '', url);
      if (redirected) filters.elements.q.value = new URL(url).searchParams.get('q');
    } catch {
      if (mine === turn) location.assign(address);
    }
  };
  filters.addEventListener('input', () => {
    clearTimeout(wait);
    wait = setTimeout(follow, 150);
  });
  filters.addEventListener('submit', (event) => {
    event.preventDefault();
    clearTimeout(wait);
    follow();
  });
}

// A key that was replaced is watched until it is quiet.
if (document.querySelector('.watch')) {
  const wait = setInterval(async () => {
    if (!document.hidden) await renew(location.href, '[data-watch]').catch(() => clearInterval(wait));
  }, 10_000);
}
