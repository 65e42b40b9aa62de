package idem

// How many repeats may wait at once. Beyond that a repeat gets InProgress at
// once.
const (
	maxWaiters          = 4096
	maxWaitersPerTenant = 256
)

// loads counts what runs and waits, of all tenants and of each. Runner.mu
// guards it.
type loads struct {
	load
	tenants map[string]load // those that have something running or waiting
}

type load struct{ executions, waiters int }

// startExecution counts an execution of the tenant, if it may have one more.
func (l *loads) startExecution(tenant string, most int) bool {
	o := l.tenants[tenant]
	if o.executions >= most {
		return false
	}
	l.change(tenant, o, load{executions: 1})
	return true
}

func (l *loads) endExecution(tenant string) {
	l.change(tenant, l.tenants[tenant], load{executions: -1})
}

// startWaiting counts a waiter of the tenant, if it may have one more.
func (l *loads) startWaiting(tenant string) bool {
	o := l.tenants[tenant]
	if l.waiters >= maxWaiters || o.waiters >= maxWaitersPerTenant {
		return false
	}
	l.change(tenant, o, load{waiters: 1})
	return true
}

func (l *loads) endWaiting(tenant string) { l.change(tenant, l.tenants[tenant], load{waiters: -1}) }

// change adds more to the load of the tenant, which is o.
func (l *loads) change(tenant string, o, more load) {
	l.load = l.plus(more)
	if o = o.plus(more); o == (load{}) {
		delete(l.tenants, tenant)
		return
	}
	l.tenants[tenant] = o
}

func (l load) plus(more load) load {
	return load{l.executions + more.executions, l.waiters + more.waiters}
}
