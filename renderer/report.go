package renderer

import (
	"cmp"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api"
)

// Reporter is implemented by renderers whose dataplane may be unable to enforce some rules.
type Reporter interface {
	// Unenforced returns the rules that are not enforced exactly, each once, sorted by Compare. It is
	// called after each Apply, by the same goroutine. The result depends only on the current input
	// and on what the dataplane can do, not on history. It is empty until the renderer knows the
	// dataplane. As long as the result does not change, Unenforced returns the same slice, so that
	// further calls are cheap. Callers must not change it.
	Unenforced() []Unenforced
}

// Unenforced is a rule of a policy that the dataplane cannot enforce exactly. It never means that
// more is permitted than the policies permit.
type Unenforced struct {
	Origin api.Origin // of the rule; IsolationRule means the whole policy
	Class  api.Class  // ClassDataplane or ClassLimit
	// Reason is one lower-case clause about the dataplane, for example "VPP does not match ports of
	// SCTP". It contains nothing that differs between pods.
	Reason string
	Effect Effect
	Pods   int // local pods to which the rule applies; 0 when unknown
}

// Effect is what happens to the traffic that the rule matches.
type Effect uint8

// The effects. EffectClosed, the zero value, is the preferred one.
const (
	EffectClosed   Effect = iota // the traffic is denied, unless another rule permits it
	EffectPrevious               // pods keep their previous rules; a pod without previous rules is blocked
	EffectWider                  // the traffic is denied together with other traffic of its protocol
)

// String returns the effect as a clause that can follow a reason.
func (e Effect) String() string {
	switch e {
	case EffectPrevious:
		return "pods keep their previous rules; a pod without previous rules is blocked"
	case EffectWider:
		return "denied together with all other ports of the protocol"
	case EffectClosed:
	}
	return "traffic that only this rule permits stays denied"
}

// Compare orders by origin, class, reason and effect.
func (u Unenforced) Compare(o Unenforced) int {
	return cmp.Or(u.Origin.Compare(o.Origin), strings.Compare(string(u.Class), string(o.Class)),
		strings.Compare(u.Reason, o.Reason), cmp.Compare(u.Effect, o.Effect), cmp.Compare(u.Pods, o.Pods))
}

// SortUnenforced sorts the list in place and removes duplicates.
func SortUnenforced(list []Unenforced) []Unenforced {
	slices.SortFunc(list, Unenforced.Compare)
	return slices.Compact(list)
}
