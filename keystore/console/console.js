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

// Presets and All and None check boxes in place, so that nothing typed is lost.
const boxes = all('input[name="scopes"]');
const count = document.querySelector('[data-count]');
const recount = () => {
  const n = boxes.filter((box) => box.checked).length;
  if (count) count.textContent = n === 0 ? '' : `${n} of ${boxes.length} picked`;
};
const check = (wanted) => {
  for (const box of boxes) box.checked = wanted(box.value);
  recount();
};
for (const button of all('[data-preset]')) {
  const names = button.dataset.preset.split(' ');
  button.addEventListener('click', (event) => {
    event.preventDefault();
    check((name) => names.includes(name));
  });
}
for (const button of all('[data-check]')) {
  button.hidden = false;
  button.addEventListener('click', () => check(() => button.dataset.check === 'all'));
}
for (const box of boxes) box.addEventListener('change', recount);
recount();

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
for (const time of all('time[datetime]')) {
  const local = new Date(time.dateTime).toLocaleString(undefined, {dateStyle: 'medium', timeStyle: 'short'});
  time.title = `${local}, your time`;
}
