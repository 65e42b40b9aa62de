package idem

// How many repeats may wait at once. Beyond that a repeat gets InProgress at
// once.
const (
	maxWaiters          = 4096
	maxWaitersPerTenant = 256
)

// load is what runs and waits.
type load struct{ executions, waiters int }

func (l load) plus(more load) load {
	return load{l.executions + more.executions, l.waiters + more.waiters}
}

// loads are those of all tenants together and of each. Runner.mu guards it.
type loads struct {
	all     load
	tenants map[string]load // those that have something running or waiting
}

// add adds more to the load of a tenant. With a negative load it takes it away.
func (l *loads) add(tenant string, more load) {
	l.all = l.all.plus(more)
	if of := l.tenants[tenant].plus(more); of == (load{}) {
		delete(l.tenants, tenant)
	} else {
		l.tenants[tenant] = of
	}
}

// startExecution counts an execution of the tenant, if it may have one more.
func (l *loads) startExecution(tenant string, most int) bool {
	if l.tenants[tenant].executions >= most {
		return false
	}
	l.add(tenant, load{executions: 1})
	return true
}

// startWaiting counts a waiter of the tenant, if it may have one more.
func (l *loads) startWaiting(tenant string) bool {
	if l.all.waiters >= maxWaiters || l.tenants[tenant].waiters >= maxWaitersPerTenant {
		return false
	}
	l.add(tenant, load{waiters: 1})
	return true
}
