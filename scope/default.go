package scope

// standard is built once and never written to.
var standard = New(
	Definition{Name: AccountRead, Meaning: "Read the organization's account data."},
	Definition{Name: WorkersRead, Meaning: "List workers and read their details."},
	Definition{Name: WorkersWrite, Meaning: "Create workers and change them."},
	Definition{Name: TasksRead, Meaning: "List tasks and read their details."},
	Definition{Name: TasksWrite, Meaning: "Create tasks and change them."},
	Definition{Name: TasksCancel, Meaning: "Cancel tasks."},
	Definition{Name: ApprovalsWrite, Meaning: "Answer requests for approval."},
	Definition{Name: DeliverablesRead, Meaning: "List deliverables and read their content."},
	Definition{Name: DeliverablesWrite, Meaning: "Add deliverables and change them, as an external worker does."},
	Definition{Name: ChatRead, Meaning: "Read chat messages, as an external worker does."},
	Definition{Name: ChatWrite, Meaning: "Send chat messages, as an external worker does."},
	Definition{Name: KnowledgeRead, Meaning: "List knowledge entries and read their content."},
	Definition{Name: KnowledgeWrite, Meaning: "Add knowledge entries and change them."},
	Definition{Name: IntegrationsRead, Meaning: "List integrations and read their settings."},
	Definition{Name: IntegrationsWrite, Meaning: "Connect integrations and change their settings."},
	Definition{Name: WebhooksWrite, Meaning: "Register webhooks and change them."},
)

// Default returns the registry of the sixteen scopes that are constants of
// this package. A program that gives no registry has this one. Every call
// returns the same one, so sets of different packages can be compared.
func Default() *Registry { return standard }

// ExternalWorker returns the scopes that an outside agent needs to run a
// worker's tasks and to answer its chat. The slice is the caller's.
func ExternalWorker() []Name {
	return []Name{DeliverablesWrite, ChatRead, ChatWrite}
}
