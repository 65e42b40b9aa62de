package keystore

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/sallyport-go/sallyport/scope"
)

// Errors of Cached.
var (
	ErrOverloaded = errors.New("keystore: too many lookups are running")
	ErrCorrupt    = errors.New("keystore: record is corrupt")
)

// CacheOptions configures a [Cached].
type CacheOptions struct {
	TTL          time.Duration
	NegativeTTL  time.Duration
	Size         int
	NegativeSize int
	Timeout      time.Duration
	Loads        int
	Registry     *scope.Registry
	FeedInterval time.Duration
	Logger       *slog.Logger
}

// Cached is a Store in front of another one.
type Cached struct{}

var (
	_ Manager = (*Cached)(nil)
	_ Toucher = (*Cached)(nil)
	_ Feed    = (*Cached)(nil)
)

func NewCached(s Store, o CacheOptions) *Cached                                   { return &Cached{} }
func (c *Cached) Lookup(ctx context.Context, d Digest) (*Key, error)              { panic("not yet") }
func (c *Cached) Peek(d Digest) (*Key, bool)                                      { panic("not yet") }
func (c *Cached) Forget(d Digest)                                                 { panic("not yet") }
func (c *Cached) MaxStaleness() time.Duration                                     { panic("not yet") }
func (c *Cached) Run(ctx context.Context) error                                   { panic("not yet") }
func (c *Cached) Insert(ctx context.Context, k *Key) error                        { panic("not yet") }
func (c *Cached) Find(ctx context.Context, organization, id string) (*Key, error) { panic("not yet") }
func (c *Cached) FindIssued(ctx context.Context, organization, actor, issueToken string) (*Key, error) {
	panic("not yet")
}
func (c *Cached) List(ctx context.Context, organization string, p Page) ([]*Key, error) {
	panic("not yet")
}
func (c *Cached) Update(ctx context.Context, k *Key) error    { panic("not yet") }
func (c *Cached) Touch(ctx context.Context, uses []Use) error { panic("not yet") }
func (c *Cached) Changes(ctx context.Context, since string) ([]Digest, string, error) {
	panic("not yet")
}
