package scope

import "strings"

// A Name is one scope as it is stored on a key and sent in a challenge, such as
// "tasks:write". It is one scope-token of RFC 6750 §3.
type Name string

// The scopes of [Default], in its order.
const (
	AccountRead       Name = "account:read"
	WorkersRead       Name = "workers:read"
	WorkersWrite      Name = "workers:write"
	TasksRead         Name = "tasks:read"
	TasksWrite        Name = "tasks:write"
	TasksCancel       Name = "tasks:cancel"
	ApprovalsWrite    Name = "approvals:write"
	DeliverablesRead  Name = "deliverables:read"
	DeliverablesWrite Name = "deliverables:write"
	ChatRead          Name = "chat:read"
	ChatWrite         Name = "chat:write"
	KnowledgeRead     Name = "knowledge:read"
	KnowledgeWrite    Name = "knowledge:write"
	IntegrationsRead  Name = "integrations:read"
	IntegrationsWrite Name = "integrations:write"
	WebhooksWrite     Name = "webhooks:write"
)

// Family returns what stands before the first colon, or all of n when there is
// none. It groups the scopes of a form; it plays no part in any decision.
func (n Name) Family() string {
	family, _, _ := strings.Cut(string(n), ":")
	return family
}

// valid reports whether n is a scope-token of RFC 6750 §3, which is what may
// stand in the quoted scope attribute of a challenge.
func (n Name) valid() bool {
	if n == "" {
		return false
	}
	for i := range len(n) {
		if c := n[i]; c < 0x21 || c > 0x7e || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}
