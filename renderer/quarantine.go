package renderer

import "context"

// Quarantiner is implemented by renderers that can block pod interfaces before the desired state is
// known.
type Quarantiner interface {
	// Quarantine blocks both directions of pod interfaces until the first Apply, and lists them in
	// State.Blocked. holdsRules reports whether the dataplane holds rules of an earlier run. Such a
	// dataplane keeps enforcing them: existing interfaces keep their rules, and only interfaces
	// that appear later are blocked. The goroutine that applies calls Quarantine again whenever the
	// dataplane has changed, and after an error. After the first Apply it does nothing.
	Quarantine(ctx context.Context) (holdsRules bool, err error)
}
