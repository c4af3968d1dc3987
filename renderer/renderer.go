// Package renderer is the contract between the configurator and the network
// stacks: the last room in which all stacks look the same.
//
// A renderer receives, per pod, two ordered lists of six-tuples, and the members
// of the address sets that they name, and makes its stack enforce exactly that.
// Directions are the vswitch's: ingress is what enters the vswitch from the pod.
//
// # Invariants
//
//   - Never fewer: while a change is applied no packet is allowed that neither the
//     old nor the new rules allow, and none is dropped that both allow.
//   - State advances after the stack's acknowledgement. After a failed Commit the
//     next Commit, even of an empty transaction, tries the rest again.
//   - Equal input causes no operation in the stack.
//   - A renderer changes only objects that carry its own mark.
package renderer

import (
	"context"
	"net/netip"

	"github.com/sluice-net/sluice/api"
)

// Renderer installs rules into one network stack. Its methods are called by one
// goroutine; different renderers commit in parallel.
type Renderer interface {
	// Name identifies the renderer in status, metrics and logs, for example "acl".
	Name() string
	// NewTxn starts a transaction. With resync, pods and sets that the
	// transaction does not name are removed by Commit.
	NewTxn(resync bool) Txn
}

// Txn collects changes; only Commit touches the stack. A transaction is used by
// one goroutine and not after Commit.
type Txn interface {
	// UpdateSet changes the members of an address set. In a resync, added is the
	// whole membership of the set. A set that no rule names may be updated; a rule
	// may name a set that was never updated, which is then empty. A member is added
	// only when it is not in the set and removed only when it is. Members of one
	// set do not overlap. After the last member is removed the set may be forgotten.
	UpdateSet(id api.SetID, added, removed []netip.Prefix)
	// Render replaces the configuration of a pod that is attached to this vswitch.
	Render(pod api.PodID, cfg PodConfig)
	// Remove forgets a pod. Removing an unknown pod does nothing.
	Remove(pod api.PodID)
	// Commit installs the difference. After an error the stack still enforces
	// either the old or the new rules of every pod, never fewer, and the next
	// Commit of this renderer tries the rest again. ErrDeferred is no failure.
	Commit(ctx context.Context) error
}

// PodConfig is what a stack must enforce for one pod. The lists are shared and
// must not be changed. Rules in Ingress (traffic that leaves the pod) name only
// the destination, rules in Egress (traffic to the pod) name only the source:
// the pod's side is any address. A nil list does not restrict the direction; a
// list ends with a rule that matches everything.
type PodConfig struct {
	IPs             []netip.Addr // sorted, at least one
	Ingress, Egress *RuleList
}

// Decision is one table's answer to a flow.
type Decision struct {
	Renderer string         `json:"renderer"`
	Table    string         `json:"table"`
	Rule     int            `json:"rule"` // index in the table
	Match    api.ContivRule `json:"match"`
	Action   api.Action     `json:"action"`
	Origins  []api.Origin   `json:"origins,omitempty"`
}

// WithRenderer writes into decisions which renderer they are of, and returns them.
func WithRenderer(renderer string, decisions []Decision) []Decision {
	for i := range decisions {
		decisions[i].Renderer = renderer
	}
	return decisions
}

// CounterKey is what hits are counted by: what a rule of a policy decides, in all tables. The zero
// origin stands for rules that no policy is the reason of.
type CounterKey struct {
	Origin api.Origin
	Action api.Action
}

// Scope is an Explainer whose dataplane has nothing to do with some flows.
type Scope interface {
	// NotApplicable returns one clause that says why the dataplane does not decide about a flow
	// that the node does decide about; empty when it decides. Explain is not asked about such
	// flows. Any goroutine may call it; it waits for no Commit.
	NotApplicable(f api.Flow) string
}

// Explainer is implemented by renderers that can say what their dataplane does with
// the first packet of a flow.
type Explainer interface {
	// Explain returns the decisions of the tables that the flow meets, in that
	// order; the flow is permitted when all of them permit it (none is open). It
	// evaluates what was last installed, not what is wanted. Any goroutine may call it;
	// it waits for no Commit.
	Explain(f api.Flow) []Decision
}
