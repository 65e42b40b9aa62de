package keystore

// An Environment says whether a key acts on an organization's real data or on
// its test data. The two never share data, limits or replies.
type Environment string

// The environments of the contract.
const (
	Production Environment = "production"
	Sandbox    Environment = "sandbox"
)

// Known reports whether e is one of the two environments. The empty
// Environment is not.
func (e Environment) Known() bool { return e.word() != "" }

// word returns the part of a token that stands for e: "live" or "test". It is
// empty for an environment that is not known.
func (e Environment) word() string {
	switch e {
	case Production:
		return "live"
	case Sandbox:
		return "test"
	}
	return ""
}

func environmentOf(word string) (Environment, bool) {
	switch word {
	case "live":
		return Production, true
	case "test":
		return Sandbox, true
	}
	return "", false
}
