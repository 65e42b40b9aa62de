// A server of the contract on plain node:http. It prints its port.
import http from 'node:http'
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

// admit returns a date before which nothing is admitted, or null.
function admit(org) {
  const now = Date.now()
  let w = windows.get(org)
  if (!w || now >= w.end) windows.set(org, (w = { end: now + 1000, used: 0 }))
  return ++w.used <= 40 ? null : new Date(Math.ceil(w.end / 1000) * 1000)
}

async function create(org, body) {
  await new Promise((done) => setTimeout(done, 5))
  const task = { id: randomUUID(), title: body.title, org }
  tasks.unshift(task)
  return { status: 201, headers: { location: `/api/v1/tasks/${task.id}` }, body: { id: task.id, title: task.title } }
}

async function readBody(req) {
  const parts = []
  for await (const part of req) parts.push(part) // throws when the body is cut
  return JSON.parse(Buffer.concat(parts).toString())
}

async function answer(req) {
  const match = /^Bearer (\S+)$/i.exec(req.headers.authorization ?? '')
  const caller = match && callers.get(match[1])
  if (!caller) return { status: 401, headers: { 'www-authenticate': 'Bearer' }, body: { error: 'unauthorized' } }
  const until = admit(caller.org)
  if (until) return { status: 429, headers: { 'retry-after': until.toUTCString() }, body: { error: 'slow down' } }
  const path = req.url.split('?')[0]
  const method = req.method === 'HEAD' ? 'GET' : req.method
  const scope = {
    'GET /api/v1/account': 'account:read',
    'GET /api/v1/tasks': 'tasks:read',
    'POST /api/v1/tasks': 'tasks:write',
  }[`${method} ${path}`]
  if (!scope) return { status: 404, body: { error: 'not found' } }
  if (!caller.scopes.includes(scope)) return { status: 403, body: { error: 'forbidden' } }
  if (path === '/api/v1/account') return { status: 200, body: { organization: caller.org } }
  if (method === 'GET') return { status: 200, body: { data: tasks.filter((t) => t.org === caller.org).slice(0, 50) } }
  let body
  try {
    body = await readBody(req)
  } catch {
    return { status: 400, body: { error: 'bad body' } }
  }
  if (typeof body?.title !== 'string') return { status: 422, body: { error: 'title is missing' } }
  const key = req.headers['idempotency-key']
  if (!key) return create(caller.org, body)
  const name = `${caller.org} ${key}`
  if (!replies.has(name)) replies.set(name, create(caller.org, body))
  return replies.get(name)
}

const server = http.createServer(async (req, res) => {
  const id = randomUUID()
  req.on('error', () => {})
  const { status, headers = {}, body } = await answer(req)
  res.writeHead(status, { 'content-type': 'application/json', ...headers, 'svc-request-id': id })
  res.end(req.method === 'HEAD' ? undefined : JSON.stringify(body))
})
server.listen(0, '127.0.0.1', () => console.log(server.address().port))
process.stdin.resume().on('end', () => process.exit(0))
