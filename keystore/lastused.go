package keystore

import (
	"context"
	"log/slog"
	"time"
)

// LastUsedOptions configures a [LastUsed].
type LastUsedOptions struct {
	Interval time.Duration
	Timeout  time.Duration
	Size     int
	Logger   *slog.Logger
}

// LastUsed gathers uses of keys.
type LastUsed struct{}

func NewLastUsed(t Toucher, o LastUsedOptions) *LastUsed { return &LastUsed{} }
func (l *LastUsed) Record(k *Key)                        { panic("not yet") }
func (l *LastUsed) Flush(ctx context.Context) error      { panic("not yet") }
func (l *LastUsed) Run(ctx context.Context) error        { panic("not yet") }
