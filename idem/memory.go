package idem

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// MemoryOptions are the settings of a [Memory]. The zero value of each field stands for its default.
type MemoryOptions struct {
	Budget          int64        // bytes; 256 MiB
	Share           int64        // bytes one partition may take; a quarter of Budget
	Claims          int          // claims in flight; 65,536
	ForgetUnexpired bool         // rather than refuse new work
	Logger          *slog.Logger // [slog.Default]
}

// MemoryStats is what a [Memory] holds, and what it had to do for want of room.
type MemoryStats struct {
	Claims    int
	Whole     int
	Shortened int
	Bytes     int64
	Forgotten uint64
	Refused   uint64
}

// Memory is a Store in the memory of one process.
type Memory struct{}

// NewMemory returns an empty Memory.
func NewMemory(o MemoryOptions) *Memory { return &Memory{} }

func (m *Memory) Begin(ctx context.Context, c Claim) (Record, error) {
	return Record{}, errors.ErrUnsupported
}
func (m *Memory) Extend(ctx context.Context, key Key, token Token, lease time.Duration) error {
	return errors.ErrUnsupported
}
func (m *Memory) Settle(ctx context.Context, key Key, token Token, s Settlement) error {
	return errors.ErrUnsupported
}

// Stats returns what the store holds now.
func (m *Memory) Stats() MemoryStats { return MemoryStats{} }

var _ Store = (*Memory)(nil)
