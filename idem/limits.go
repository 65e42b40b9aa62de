package idem

// load is what one owner has running and waiting. An owner without either has no entry.
type load struct{ executions, waiters int }

// startExecution counts an execution on the owner's account, if it may have one more. r.mu is held.
func (r *Runner) startExecution(owner string) bool {
	l := r.owners[owner]
	if l.executions >= r.options.ExecutionsPerOwner {
		return false
	}
	l.executions++
	r.owners[owner] = l
	return true
}

func (r *Runner) endExecution(owner string) {
	l := r.owners[owner]
	l.executions--
	r.setLoad(owner, l)
}

// startWaiting counts a waiter on the owner's account, if it may have one more. r.mu is held.
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
