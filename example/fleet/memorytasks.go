package main

import (
	"context"
	"slices"
	"sync"
)

// memoryTasks keeps tasks until the process ends. The zero value is ready for
// use, by many goroutines at once.
type memoryTasks struct {
	mu      sync.Mutex
	tenants map[string][]task // the newest last
}

func (m *memoryTasks) Create(_ context.Context, tenant, title string) (task, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.tenants == nil {
		m.tenants = make(map[string][]task)
	}
	t := newTask(title)
	m.tenants[tenant] = append(m.tenants[tenant], t)
	return t, nil
}

func (m *memoryTasks) Find(_ context.Context, tenant, id string) (task, error) {
	return m.one(tenant, id, func(*task) {})
}

func (m *memoryTasks) Cancel(_ context.Context, tenant, id string) (task, error) {
	return m.one(tenant, id, func(t *task) { t.State = cancelled })
}

func (m *memoryTasks) one(tenant, id string, change func(*task)) (task, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.tenants[tenant]
	i := slices.IndexFunc(all, func(t task) bool { return t.ID == id })
	if i < 0 {
		return task{}, errNoTask
	}
	change(&all[i])
	return all[i], nil
}

func (m *memoryTasks) List(_ context.Context, tenant string) ([]task, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.tenants[tenant]
	newest := append([]task{}, all[max(0, len(all)-100):]...)
	slices.Reverse(newest)
	return newest, nil
}
