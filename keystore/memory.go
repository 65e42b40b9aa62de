package keystore

import "context"

// Memory is a Manager in memory.
type Memory struct{}

var (
	_ Manager = (*Memory)(nil)
	_ Toucher = (*Memory)(nil)
	_ Feed    = (*Memory)(nil)
)

func NewMemory() *Memory                                                          { return &Memory{} }
func (m *Memory) Lookup(ctx context.Context, d Digest) (*Key, error)              { panic("not yet") }
func (m *Memory) Insert(ctx context.Context, k *Key) error                        { panic("not yet") }
func (m *Memory) Find(ctx context.Context, organization, id string) (*Key, error) { panic("not yet") }
func (m *Memory) FindIssued(ctx context.Context, organization, actor, issueToken string) (*Key, error) {
	panic("not yet")
}
func (m *Memory) List(ctx context.Context, organization string, p Page) ([]*Key, error) {
	panic("not yet")
}
func (m *Memory) Update(ctx context.Context, k *Key) error    { panic("not yet") }
func (m *Memory) Touch(ctx context.Context, uses []Use) error { panic("not yet") }
func (m *Memory) Changes(ctx context.Context, since string) ([]Digest, string, error) {
	panic("not yet")
}
