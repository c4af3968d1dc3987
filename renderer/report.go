package renderer

import (
	"cmp"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api"
)

// Reporter is implemented by renderers whose stack may be unable to enforce a part
// of what they are told.
type Reporter interface {
	// Unenforced returns which rules are not enforced as they are, sorted by Compare,
	// each once. It is asked after every Commit of the renderer, by the goroutine that
	// called it, and answers for everything that the renderer was told: a function of
	// that and of what the stack can do, whatever happened before. Before it is known
	// which stack there is, nothing is. While the answer stays the same it is the same
	// slice, which must not be changed, so that asking costs nothing.
	Unenforced() []Unenforced
}

// Unenforced is a rule of a policy that a stack cannot enforce as it is. It never
// means that more is permitted than the policies permit.
type Unenforced struct {
	Origin api.Origin // of the rule; IsolationRule stands for the policy as a whole
	Class  api.Class  // ClassStack or ClassLimit
	// Reason is one lower-case clause on the stack, for example "VPP does not match
	// ports of SCTP". It holds nothing that differs from pod to pod.
	Reason string
	Effect Effect
	Pods   int // local pods that the rule applies to; 0 when that is not known
}

// Effect says what becomes of the traffic that the rule is about.
type Effect uint8

// The effects. The zero value is what renderers should strive for.
const (
	EffectClosed   Effect = iota // it is denied, unless another rule permits it
	EffectPrevious               // pods keep the rules they had before; one that had none is closed
	EffectWider                  // it is denied together with other traffic of its protocol
)

// String says it in words that follow a reason.
func (e Effect) String() string {
	switch e {
	case EffectPrevious:
		return "pods keep the rules they had, and pods without any are closed"
	case EffectWider:
		return "where this rule denies, all ports of the protocol are denied"
	case EffectClosed:
	}
	return "what only this rule permits stays closed"
}

// Compare orders by origin, class, reason and effect.
func (u Unenforced) Compare(o Unenforced) int {
	return cmp.Or(u.Origin.Compare(o.Origin), strings.Compare(string(u.Class), string(o.Class)),
		strings.Compare(u.Reason, o.Reason), cmp.Compare(u.Effect, o.Effect), cmp.Compare(u.Pods, o.Pods))
}

// SortUnenforced sorts in place and drops what is there twice.
func SortUnenforced(list []Unenforced) []Unenforced {
	slices.SortFunc(list, Unenforced.Compare)
	return slices.Compact(list)
}
