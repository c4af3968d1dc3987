package renderer

import "context"

// Quarantiner is implemented by renderers that can block the interfaces of pods before the first
// state is known.
type Quarantiner interface {
	// Quarantine blocks interfaces of pods, in both directions, for as long as there was no Commit,
	// and has State name them in Blocked. It reports whether the dataplane holds rules of an
	// earlier run. Such a dataplane goes on enforcing these: all interfaces that it has keep what
	// they have, and only those that come later are blocked. It is called again whenever the
	// dataplane has changed, and after an error, by the goroutine that commits. After the first
	// Commit it does nothing.
	Quarantine(ctx context.Context) (holdsRules bool, err error)
}
