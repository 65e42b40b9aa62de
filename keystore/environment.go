package keystore

// An Environment says whether a key acts on an organization's real data or on its
// test data, which share no limits or replies. Tokens of Production have _live_
// after the prefix, those of Sandbox _test_.
type Environment string

// The environments.
const (
	Production Environment = "production"
	Sandbox    Environment = "sandbox"
)

// Known reports whether e is one of the two environments. The empty
// Environment is not.
func (e Environment) Known() bool { return e == Production || e == Sandbox }
