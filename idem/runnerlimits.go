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
	o := l.owners[owner]
	if o.executions >= most {
		return false
	}
	l.change(owner, o, load{executions: 1})
	return true
}

func (l *loads) endExecution(owner string) { l.change(owner, l.owners[owner], load{executions: -1}) }

// startWaiting counts a waiter of the owner, if it may have one more.
func (l *loads) startWaiting(owner string) bool {
	o := l.owners[owner]
	if l.waiters >= maxWaiters || o.waiters >= maxWaitersPerOwner {
		return false
	}
	l.change(owner, o, load{waiters: 1})
	return true
}

func (l *loads) endWaiting(owner string) { l.change(owner, l.owners[owner], load{waiters: -1}) }

// change adds more to the load of the owner, which is o.
func (l *loads) change(owner string, o, more load) {
	l.load = l.plus(more)
	if o = o.plus(more); o == (load{}) {
		delete(l.owners, owner)
		return
	}
	l.owners[owner] = o
}

func (l load) plus(more load) load {
	return load{l.executions + more.executions, l.waiters + more.waiters}
}
