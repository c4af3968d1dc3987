// Package renderer defines the contract between the policy pipeline and its dataplanes: the
// interfaces that a renderer implements, and what it receives and reports. It is the last layer at
// which all dataplanes look the same.
//
// A renderer receives two ordered lists of six-tuples for each pod, and the members of the address
// sets that they name. It makes its dataplane enforce exactly that. Directions are the vswitch's:
// ingress traffic enters the vswitch from the pod.
//
// # Invariants
//
//   - Never fewer: while a change is applied no packet is allowed that neither the
//     old nor the new rules allow, and none is dropped that both allow.
//   - State advances only after the dataplane has acknowledged a change. After a
//     failed Apply, the next one retries the rest, even without changes.
//   - Equal input causes no operation in the dataplane.
//   - A renderer changes only objects that carry its own mark.
package renderer

import (
	"context"
	"net/netip"

	"github.com/sluice-net/sluice/api"
)

// Renderer installs rules into one dataplane. Its methods are called one at a time, not always by
// the same goroutine. Different renderers apply changes in parallel.
type Renderer interface {
	// Name identifies the renderer in status, metrics and logs, for example "acl".
	Name() string
	// Apply takes changes over and makes the dataplane enforce them.
	//
	// It takes them over first: before any call to the dataplane, and with a context that has ended,
	// too, the changes become a part of the state that the renderer wants. So they are never passed
	// again, and Apply(ctx, Changes{}) is a retry. After an error the dataplane still enforces either
	// the old or the new rules of every pod, never fewer, and the next Apply installs the rest.
	//
	// A list may name a set that was never in any changes: it has no members. The caller may forget a
	// set once its last member was removed.
	Apply(ctx context.Context, c Changes) error
}

// PodConfig is what a dataplane must enforce for one pod. The lists are shared and must not be
// changed. Rules in Ingress (traffic that leaves the pod) name only the destination. Rules in
// Egress (traffic to the pod) name only the source. The pod's side matches any address. An audited
// rule permits like any other; a dataplane that counts packets counts it apart. A nil list
// does not restrict its direction. Every list ends with a rule that matches everything.
type PodConfig struct {
	IPs             []netip.Addr // sorted, at least one
	Ingress, Egress *RuleList
}

// Decision is the verdict of one table on a flow.
type Decision struct {
	Renderer string         `json:"renderer"`
	Table    string         `json:"table"`
	Rule     int            `json:"rule"` // index in the table
	Match    api.ContivRule `json:"match"`
	Action   api.Action     `json:"action"`
	Origins  []api.Origin   `json:"origins,omitempty"`
}

// WithRenderer sets the renderer name of decisions and returns them.
func WithRenderer(renderer string, decisions []Decision) []Decision {
	for i := range decisions {
		decisions[i].Renderer = renderer
	}
	return decisions
}

// CounterKey identifies a packet counter: the decisions of one rule of a policy, summed over all
// tables. The zero origin is that of rules without a policy.
type CounterKey struct {
	Origin api.Origin
	Action api.Action
}

// Scope is an Explainer whose dataplane handles only some flows.
type Scope interface {
	// NotApplicable returns one clause that says why this dataplane does not decide about a flow
	// that the node decides about. It returns "" when the dataplane decides. Explain is not called
	// for flows that are not applicable. Any goroutine may call it; it does not wait for an Apply.
	NotApplicable(f api.Flow) string
}

// Explainer is implemented by renderers that can explain how their dataplane handles the first
// packet of a flow.
type Explainer interface {
	// Explain returns the decisions of the tables that the flow meets, in that order. The flow is
	// permitted if all of them permit it, or if there are none. It evaluates the installed state,
	// not the desired state. Any goroutine may call it; it does not wait for an Apply.
	Explain(f api.Flow) []Decision
}
