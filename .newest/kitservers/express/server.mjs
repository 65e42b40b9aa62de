// A server of the contract on Express, with its stock body parser. It prints
// its port.
import express from 'express'
import { randomUUID } from 'node:crypto'

const callers = new Map([
  ['acme_live_kR8vTq2mXw4ZpLs9', { org: 'org_1', scopes: ['account:read', 'tasks:read', 'tasks:write'] }],
  ['acme_live_Nn3bHc7yDf1GjQe5', { org: 'org_1', scopes: [] }],
  ['acme_live_Wd6uKz0oBa8RiVt2', { org: 'org_1', scopes: ['chat:read', 'chat:write'] }],
  ['acme_live_Rx4sMe9pYg7CnJo1', { org: 'org_1', scopes: ['account:read', 'tasks:read'] }],
  ['acme_live_Ft5wLq3kUv2HbZd8', { org: 'org_1', scopes: ['tasks:write'] }],
  ['acme_live_Ov7jPy6aSn4XcGm0', { org: 'org_2', scopes: ['account:read', 'tasks:read', 'tasks:write'] }],
])
const tasks = []
const replies = new Map() // a promise of the response by organization and key
const windows = new Map()

function identify(req, res, next) {
  res.set('Svc-Request-Id', randomUUID())
  next()
}

function authenticate(req, res, next) {
  const [scheme, token] = (req.get('Authorization') ?? '').split(/ (.*)/)
  req.caller = scheme.toLowerCase() === 'bearer' ? callers.get(token) : undefined
  if (!req.caller) return res.status(401).set('WWW-Authenticate', 'Bearer').json({ error: 'unauthorized' })
  next()
}

function limit(req, res, next) {
  const now = Date.now()
  let w = windows.get(req.caller.org)
  if (!w || now >= w.end) windows.set(req.caller.org, (w = { end: now + 1500, used: 0 }))
  if (++w.used <= 60) return next()
  res.status(429).set('Retry-After', String(Math.ceil((w.end - now) / 1000))).json({ error: 'slow down' })
}

const allow = (scope) => (req, res, next) =>
  req.caller.scopes.includes(scope) ? next() : res.status(403).json({ error: 'forbidden' })

async function create(org, title) {
  await new Promise((done) => setTimeout(done, 5))
  const task = { id: randomUUID(), title, org }
  tasks.unshift(task)
  return task
}

const app = express()
app.use(identify, authenticate, limit)
app.get('/api/v1/account', allow('account:read'), (req, res) => res.json({ organization: req.caller.org }))
app
  .route('/api/v1/tasks')
  .get(allow('tasks:read'), (req, res) => res.json(tasks.filter((t) => t.org === req.caller.org).slice(0, 50)))
  .post(allow('tasks:write'), express.json(), async (req, res) => {
    const title = req.body?.title
    if (typeof title !== 'string') return res.status(422).json({ error: 'title is missing' })
    const key = req.get('Idempotency-Key')
    const name = `${req.caller.org} ${key}`
    const made = (key && replies.get(name)) || create(req.caller.org, title)
    if (key) replies.set(name, made)
    const { id } = await made
    res.status(201).location(`/api/v1/tasks/${id}`).json({ id, title: (await made).title })
  })
app.use((err, req, res, next) => res.status(err.status ?? 500).json({ error: 'bad body' }))

const server = app.listen(0, '127.0.0.1', () => console.log(server.address().port))
process.stdin.resume().on('end', () => process.exit(0))
