package ratelimitredis

import (
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/sallyport-go/sallyport/ratelimit"
)

// takeScript is ratelimit.GCRA for several buckets: it charges all of them or
// none. A key holds the tat of a bucket by the server's clock, in microseconds.
//
// ARGV is for how many decisions to charge, and two numbers for each key: the
// time in which a full burst comes back, and the time in which the charge of
// one decision does. The reply is for how many decisions it charged or, of a
// denial, would have, and two numbers for each key: the debt that is left, and
// the wait. It is for one decision unless every bucket has twice the units for
// all of them. No sum that counts exceeds 2^53, up to which Lua's numbers are
// exact.
var takeScript = redis.NewScript(`
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local stored = redis.call('MGET', unpack(KEYS))
local old, new, waits, denied = {}, {}, {}, false
local amount, twice = tonumber(ARGV[1]), {}

for i, key in ipairs(KEYS) do
	local full, charge = tonumber(ARGV[2 * i]), tonumber(ARGV[2 * i + 1])
	if not old[key] then
		old[key], twice[key] = tonumber(stored[i]) or 0, 0
		new[key] = old[key]
	end
	twice[key] = twice[key] + 2 * tonumber(ARGV[1]) * charge
	if twice[key] > full - math.min(math.max(old[key] - now, 0), full) then
		amount = 1
	end
end

for i, key in ipairs(KEYS) do
	local full, charge = tonumber(ARGV[2 * i]), amount * tonumber(ARGV[2 * i + 1])
	-- After a clock that stepped back, no more than a full burst.
	local debt = math.min(math.max(new[key] - now, 0), full)
	waits[i] = 0
	if charge > full - debt then
		waits[i] = charge - (full - debt)
		denied = true
	elseif charge > 0 then
		new[key] = now + debt + charge
	end
end

local reply = {amount}
for i, key in ipairs(KEYS) do
	local full, tat, changed = tonumber(ARGV[2 * i]), new[key], new[key] ~= old[key]
	if denied then
		-- Nothing is charged. A tat beyond a full burst is cut and stored: without
		-- that the wait would not be true.
		tat, changed = old[key], false
		if waits[i] > 0 and tat > now + full then
			tat, changed = now + full, true
		end
	end
	local debt = math.min(math.max(tat - now, 0), full)
	if changed then
		-- Keys expire at whole milliseconds. One more, so that none expires early.
		local expiry = string.format('%.0f', math.ceil(debt / 1000) + 1)
		redis.call('SET', key, string.format('%.0f', tat), 'PX', expiry)
	end
	reply[2 * i], reply[2 * i + 1] = debt, waits[i]
end
return reply
`)

// counters are the store behind the Failover: they decide if Redis answers.
type counters struct {
	client   redis.Scripter
	prefix   string
	seed     maphash.Seed
	denials  denials
	ahead    *ahead
	answered atomic.Bool // the last call was
}

// Take bounds the call by ctx, which ends with the timeout, only if Redis
// answered the last one. Otherwise the client may have to connect. go-redis
// would drop a connection that takes longer than ctx, and so would never have
// one if that is always so. The client's own timeouts bound the call then.
func (c *counters) Take(ctx context.Context, charges []ratelimit.Charge) (ratelimit.Decision, error) {
	if !c.answered.Load() {
		ctx = context.WithoutCancel(ctx)
	}
	d, err := c.take(ctx, charges)
	c.answered.Store(err == nil)
	return d, err
}

func (c *counters) take(ctx context.Context, charges []ratelimit.Charge) (ratelimit.Decision, error) {
	if len(charges) == 0 {
		return ratelimit.Decide(charges, [ratelimit.MaxCharges]ratelimit.State{}), nil
	}
	key, hands := listKey(c.seed, charges), c.ahead
	if !slices.ContainsFunc(charges, func(c ratelimit.Charge) bool { return c.Cost > 0 }) {
		hands = nil // a look at Redis: there is nothing to take
	}
	amount, before := hands.ask(key)
	a, err := c.trip(ctx, charges, amount)
	if err != nil {
		return ratelimit.Decision{}, fmt.Errorf("ratelimitredis: %w", err)
	}
	show := hands.keep(key, a.amount, before, a.debts)
	states := show.states(charges, show.at)
	for i := range charges {
		states[i].Wait = a.waits[i]
	}
	if a.amount == 0 {
		c.denials.remember(key, states)
		// The trip was for more before all were spent, or another has brought
		// some.
		if d, ok := hands.spend(key, charges); ok {
			return d, nil
		}
	}
	return ratelimit.Decide(charges, states), nil
}

// answer is what the script says.
type answer struct {
	amount       int64 // of decisions that are charged; 0 is a denial
	debts, waits [ratelimit.MaxCharges]time.Duration
}

// trip runs the script for the given number of decisions.
func (c *counters) trip(ctx context.Context, charges []ratelimit.Charge, amount int64) (a answer, err error) {
	args := make([]any, 1+2*len(charges))
	args[0] = amount
	for i := range charges {
		p := paceOf(&charges[i])
		args[2*i+1], args[2*i+2] = p.full, p.charge(charges[i].Cost)
	}
	reply, err := takeScript.Run(ctx, c.client, c.keys(charges), args...).Int64Slice()
	if err != nil {
		return answer{}, err
	}
	if len(reply) != len(args) || reply[0] < 1 || reply[0] > amount {
		return answer{}, fmt.Errorf("got the numbers %d for %d charges", reply, len(charges))
	}
	a.amount = reply[0]
	for i := range charges {
		a.debts[i], a.waits[i] = duration(reply[2*i+1]), duration(reply[2*i+2])
		if a.waits[i] > 0 {
			a.amount = 0
		}
	}
	return a, nil
}

// keys names the counters of charges. The part in braces decides the slot.
func (c *counters) keys(charges []ratelimit.Charge) []string {
	tag := append(make([]byte, 0, 128), '{')
	tag = append(tag, c.prefix...)
	tag = append(tag, '}')
	keys := make([]string, len(charges))
	for i := range charges {
		keys[i] = string(charges[i].AppendKey(tag))
	}
	return keys
}

// pace is a limit in microseconds.
type pace struct{ burst, interval, full int64 }

// maxFull, 221 years, and the time since 1970 are together below 2^53.
const maxFull = 7e15

func paceOf(c *ratelimit.Charge) pace {
	l := c.Policy.Limit
	p := pace{burst: l.Capacity(), interval: int64((l.Interval()-1)/time.Microsecond) + 1}
	// A burst of a valid limit comes back within 2^62 ns, and rounding at most
	// doubles that. A limit that maxFull cuts is stricter than asked.
	p.full = min(p.interval*p.burst, maxFull)
	return p
}

func (p pace) charge(cost int64) int64 { return min(p.interval*cost, p.full) }

// state is that of a bucket which will be full after debt.
func (p pace) state(debt time.Duration) ratelimit.State {
	if debt <= 0 {
		return ratelimit.State{Remaining: p.burst}
	}
	left := time.Duration(p.full)*time.Microsecond - debt
	return ratelimit.State{Remaining: int64(left / (time.Duration(p.interval) * time.Microsecond)), Reset: debt}
}

func duration(us int64) time.Duration { return time.Duration(us) * time.Microsecond }
