package main

import (
	"context"
	"slices"
	"strings"
	"sync"
)

// memoryTasks keeps tasks until the process ends. The zero value is ready for
// use, by many goroutines at once.
type memoryTasks struct {
	mu      sync.RWMutex
	tenants map[string][]task // by id
}

func byID(t task, id string) int { return strings.Compare(t.ID, id) }

func (m *memoryTasks) Create(_ context.Context, tenant, title string) (task, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.tenants == nil {
		m.tenants = make(map[string][]task)
	}
	t, all := newTask(title), m.tenants[tenant]
	i, _ := slices.BinarySearchFunc(all, t.ID, byID) // the end, unless the clock was set back
	m.tenants[tenant] = slices.Insert(all, i, t)
	return t, nil
}

func (m *memoryTasks) Find(_ context.Context, tenant, id string) (task, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	all := m.tenants[tenant]
	i, ok := slices.BinarySearchFunc(all, id, byID)
	if !ok {
		return task{}, errNoTask
	}
	return all[i], nil
}

func (m *memoryTasks) List(_ context.Context, tenant, after string, limit int) ([]task, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	all := m.tenants[tenant]
	end := len(all)
	if after != "" {
		end, _ = slices.BinarySearchFunc(all, after, byID)
	}
	page := append([]task{}, all[max(0, end-limit):end]...)
	slices.Reverse(page)
	return page, nil
}

func (m *memoryTasks) Cancel(_ context.Context, tenant, id string) (task, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.tenants[tenant]
	i, ok := slices.BinarySearchFunc(all, id, byID)
	if !ok {
		return task{}, errNoTask
	}
	if all[i].State == open {
		all[i].State, all[i].CancelledAt = cancelled, now()
	}
	return all[i], nil
}
