package main

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/rs/xid"
)

// A task is open until it is cancelled; cancelling is final.
type task struct {
	ID          string    `json:"id"`
	Title       string    `json:"title"`
	State       state     `json:"state"`
	CreatedAt   time.Time `json:"created_at"`
	CancelledAt time.Time `json:"cancelled_at,omitzero"`
}

type state string

const (
	open      state = "open"
	cancelled state = "cancelled"
)

// errNoTask says that the tenant has no task of that id, whoever else may have
// one.
var errNoTask = errors.New("example: no such task")

// memoryTasks keeps tasks until the process ends. The zero value is ready for
// use, by many goroutines at once.
type memoryTasks struct {
	mu      sync.RWMutex
	tenants map[string]*ledger
}

// A ledger holds one tenant's tasks, oldest first. No two were created at the
// same time, so that a time names a place in it.
type ledger struct {
	tasks []task
	index map[string]int // id → place in tasks
}

func (m *memoryTasks) Create(_ context.Context, tenant, title string) (task, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.tenants[tenant]
	if l == nil {
		if m.tenants == nil {
			m.tenants = make(map[string]*ledger)
		}
		l = &ledger{index: make(map[string]int)}
		m.tenants[tenant] = l
	}
	t := task{ID: "task_" + xid.New().String(), Title: title, State: open, CreatedAt: l.next()}
	l.index[t.ID] = len(l.tasks)
	l.tasks = append(l.tasks, t)
	return t, nil
}

// next is the present, or just after the newest task where the clock stood
// still or went back. Microseconds are what databases keep of a time.
func (l *ledger) next() time.Time {
	now := time.Now().UTC().Truncate(time.Microsecond)
	if n := len(l.tasks); n > 0 && !now.After(l.tasks[n-1].CreatedAt) {
		now = l.tasks[n-1].CreatedAt.Add(time.Microsecond)
	}
	return now
}

func (m *memoryTasks) Find(_ context.Context, tenant, id string) (task, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if l := m.tenants[tenant]; l != nil {
		if i, ok := l.index[id]; ok {
			return l.tasks[i], nil
		}
	}
	return task{}, errNoTask
}

func (m *memoryTasks) List(_ context.Context, tenant string, after cursor, limit int) ([]task, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	page := make([]task, 0, min(limit, 16))
	l := m.tenants[tenant]
	if l == nil {
		return page, nil
	}
	end := len(l.tasks)
	if after != (cursor{}) {
		end, _ = slices.BinarySearchFunc(l.tasks, after, func(t task, c cursor) int {
			return cmp.Or(cmp.Compare(t.CreatedAt.UnixMicro(), c.micros), cmp.Compare(t.ID, c.taskID()))
		})
	}
	for _, t := range slices.Backward(l.tasks[max(0, end-limit):end]) {
		page = append(page, t)
	}
	return page, nil
}

func (m *memoryTasks) Cancel(_ context.Context, tenant, id string) (task, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l := m.tenants[tenant]; l != nil {
		if i, ok := l.index[id]; ok {
			t := &l.tasks[i]
			if t.State != cancelled {
				t.State, t.CancelledAt = cancelled, time.Now().UTC().Truncate(time.Microsecond)
			}
			return *t, nil
		}
	}
	return task{}, errNoTask
}
