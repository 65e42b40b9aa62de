package keystore

import "context"

// Key returns a key of the organization, or [ErrNotFound]. The key belongs to
// the caller.
func (i *Issuer) Key(ctx context.Context, organization, id string) (*Key, error) {
	return i.manager.Find(ctx, organization, id)
}

// Keys returns one page of the organization's keys, as [Manager.List] does.
func (i *Issuer) Keys(ctx context.Context, organization string, p Page) ([]*Key, error) {
	return i.manager.List(ctx, organization, p)
}

// Issued returns the key that [Issuer.Issue], [Issuer.Import] or
// [Issuer.Rotate] made for this actor and token, or [ErrNotFound].
func (i *Issuer) Issued(ctx context.Context, organization, actor, token string) (*Key, error) {
	return i.manager.FindIssued(ctx, organization, actor, token)
}

// Masked returns as much of k's token as may be shown, such as
// "svc_live_…a1b2".
func (i *Issuer) Masked(k *Key) string {
	return i.format.prefix() + "_" + k.Environment.Word() + "_…" + k.Hint
}

// Check returns the [*GrantError] with which Issue would refuse g now, or nil.
func (i *Issuer) Check(g Grant) error {
	return g.check(i.registry(), instant())
}
