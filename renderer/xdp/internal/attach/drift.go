package attach

// Drift counts what somebody else changed, by kind.
type Drift map[string]uint64

// The kinds of Drift.
const (
	DriftAttachment = "attachment" // a program does not run any more where it was attached
	DriftProgram    = "program"    // another program runs in its place
	DriftPin        = "pin"        // what should go on without a process would not
	DriftPolicyMap  = "policy map" // what programs read was changed
)
