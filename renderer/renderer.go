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
//     failed Commit, the next Commit retries the rest, even for an empty transaction.
//   - Equal input causes no operation in the dataplane.
//   - A renderer changes only objects that carry its own mark.
package renderer

import (
	"context"
	"net/netip"

	"github.com/sluice-net/sluice/api"
)

// Renderer installs rules into one dataplane. Its methods and those of its transactions are called
// one at a time, not always by the same goroutine. Different renderers commit in parallel.
type Renderer interface {
	// Name identifies the renderer in status, metrics and logs, for example "acl".
	Name() string
	// NewTxn starts a transaction. If resync is true, Commit removes the pods and sets that the
	// transaction does not name.
	NewTxn(resync bool) Txn
}

// Txn collects changes. Only Commit touches the dataplane. A transaction is not used after Commit.
// It may name a set or a pod more than once; such calls apply in their order.
type Txn interface {
	// UpdateSet changes the members of an address set. In a resync, added lists all members of the
	// set. A set may be updated before any rule names it. A rule may name a set that was never
	// updated; the set is then empty. The caller adds only prefixes that are not members, and
	// removes only members. Members of one set do not overlap. The caller may forget a set once its
	// last member is removed.
	UpdateSet(id api.SetID, added, removed []netip.Prefix)
	// Render replaces the configuration of a pod that is attached to this vswitch.
	Render(pod api.PodID, cfg PodConfig)
	// Remove removes a pod. It ignores unknown pods.
	Remove(pod api.PodID)
	// Commit installs the difference. After an error, the dataplane still enforces either the old
	// or the new rules of every pod, never fewer, and the next Commit of this renderer retries the
	// rest. ErrDeferred is not a failure.
	Commit(ctx context.Context) error
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
	// for flows that are not applicable. Any goroutine may call it; it does not wait for a Commit.
	NotApplicable(f api.Flow) string
}

// Explainer is implemented by renderers that can explain how their dataplane handles the first
// packet of a flow.
type Explainer interface {
	// Explain returns the decisions of the tables that the flow meets, in that order. The flow is
	// permitted if all of them permit it, or if there are none. It evaluates the installed state,
	// not the desired state. Any goroutine may call it; it does not wait for a Commit.
	Explain(f api.Flow) []Decision
}
