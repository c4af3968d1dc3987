package attach

// Drift counts changes by others, by kind.
type Drift map[string]uint64

// The kinds of Drift.
const (
	DriftAttachment = "attachment" // a program was detached
	DriftProgram    = "program"    // a program was replaced
	DriftOrder      = "order"      // another program was put before ours
	DriftPin        = "pin"        // a pin was removed
	DriftPolicyMap  = "policy map" // the content of the policy map was changed
)
