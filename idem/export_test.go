package idem

import "time"

// An Outage reads its clock under its lock.
type Outage struct{ outage }

// Told records a result at a time that now returns, and Locked reports whether
// somebody holds the lock.
func (o *Outage) Told(err error, now func() time.Duration) {
	o.now, o.probe = now, func() {}
	o.told(err, 0)
}

func (o *Outage) Locked() bool {
	free := o.mu.TryLock()
	if free {
		o.mu.Unlock()
	}
	return !free
}
