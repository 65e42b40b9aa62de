package idem

import "context"

// Execution is the right, and the duty, to run one request.
type Execution struct{}

// Context returns a context for whoever runs the request.
func (e *Execution) Context(parent context.Context) context.Context { return parent }

// Attempt is 1, or more when an earlier run of the request was given up.
func (e *Execution) Attempt() int { return 1 }

// Joined reports whether the execution is part of a transaction of the store.
func (e *Execution) Joined() bool { return false }

// Settle ends the execution.
func (e *Execution) Settle(ctx context.Context, s Settlement) error { return nil }
