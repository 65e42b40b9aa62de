package idem

// How many duplicates may wait at once. Beyond that a duplicate gets InFlight
// at once.
const (
	maxWaiters         = 4096
	maxWaitersPerOwner = 256
)

// loads counts what runs and waits, of all owners and of each. Runner.mu guards
// it.
type loads struct {
	load
	owners map[string]load // those that have something running or waiting
}

type load struct{ executions, waiters int }

// startExecution counts an execution of the owner, if it may have one more.
func (l *loads) startExecution(owner string, most int) bool {
	if l.owners[owner].executions >= most {
		return false
	}
	l.add(owner, load{executions: 1})
	return true
}

func (l *loads) endExecution(owner string) { l.add(owner, load{executions: -1}) }

// startWaiting counts a waiter of the owner, if it may have one more.
func (l *loads) startWaiting(owner string) bool {
	if l.waiters >= maxWaiters || l.owners[owner].waiters >= maxWaitersPerOwner {
		return false
	}
	l.add(owner, load{waiters: 1})
	return true
}

func (l *loads) endWaiting(owner string) { l.add(owner, load{waiters: -1}) }

func (l *loads) add(owner string, more load) {
	l.executions += more.executions
	l.waiters += more.waiters
	o := l.owners[owner]
	o.executions += more.executions
	o.waiters += more.waiters
	if o == (load{}) {
		delete(l.owners, owner)
		return
	}
	l.owners[owner] = o
}
