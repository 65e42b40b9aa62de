package idem

// load is what one owner has running and waiting. An owner without either has
// no entry. The methods that change it are called with r.mu held.
type load struct{ executions, waiters int }

// startExecution counts an execution of the owner, if it may have one more.
func (r *Runner) startExecution(owner string) bool {
	l := r.owners[owner]
	if l.executions >= r.options.ExecutionsPerOwner {
		return false
	}
	l.executions++
	r.running++
	r.owners[owner] = l
	return true
}

func (r *Runner) endExecution(owner string) {
	l := r.owners[owner]
	l.executions--
	r.running--
	r.setLoad(owner, l)
	r.signalIdle()
}

// startWaiting counts a waiter of the owner, if it may have one more.
func (r *Runner) startWaiting(owner string) bool {
	l := r.owners[owner]
	if r.waiting >= r.options.Waiters || l.waiters >= r.options.WaitersPerOwner {
		return false
	}
	r.waiting++
	l.waiters++
	r.owners[owner] = l
	return true
}

func (r *Runner) endWaiting(owner string) {
	l := r.owners[owner]
	r.waiting--
	l.waiters--
	r.setLoad(owner, l)
}

func (r *Runner) setLoad(owner string, l load) {
	if l == (load{}) {
		delete(r.owners, owner)
		return
	}
	r.owners[owner] = l
}
