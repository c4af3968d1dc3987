// Package preview computes, before a change is made, which flows it would open or close, by which
// rules, and what each dataplane would have to do.
//
//	two states -> vocabulary -> classes of pods, addresses, ports   (vocabulary.go, classes.go, ...)
//	           -> every flow that either state tells apart          (compare.go)
//	           -> rows by meaning                                   (group.go)
//	each node  -> its dataplanes: verdicts, operations, memory      (nodes.go)
//
// # Invariants
//
//   - The comparison is exact: a flow that is not reported has the same verdict in both states, and
//     one that is reported has not. Pods that no policy of either state tells apart are asked about
//     once; no two pods are ever paired for themselves.
//   - Verdicts are those of the specification. The dataplanes are asked about every kind of flow
//     that is reported, in both states, and a disagreement is an error.
//   - A report is a function of the two states and the options.
package preview

import (
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api"
)

// Report is the effects of a change.
type Report struct {
	Differences []Difference `json:"differences"`
	Nodes       []Node       `json:"nodes,omitempty"`
	// Pods, Groups and Flows are how many pods there are, how many groups of them that some policy
	// treats alike, and about how many flows both states were asked.
	Pods   int `json:"pods"`
	Groups int `json:"groups"`
	Flows  int `json:"flows"`
	// Checked counts the flows that the dataplanes were asked about, and Disagreements says where
	// one of them did not do what the specification says.
	Checked       int      `json:"checked"`
	Disagreements []string `json:"disagreements,omitempty"`
	// Notes are what the report leaves out.
	Notes []string `json:"notes,omitempty"`
}

// Change reports whether flows open or close.
type Change string

// The changes.
const (
	Opened Change = "opened"
	Closed Change = "closed"
)

// Difference is flows that open, or close, for one reason.
type Difference struct {
	Change Change `json:"change"`
	From   Side   `json:"from"`
	To     Side   `json:"to"`
	// Ports are those of the destination: "8080/tcp", "every port", "other protocols".
	Ports []string `json:"ports"`
	// Family is IPv4 or IPv6 where flows of the other one stay as they are.
	Family string   `json:"family,omitempty"`
	Was    Decision `json:"was"`
	Is     Decision `json:"is"`
}

// Side is the parties at one end of flows.
type Side struct {
	Pods      int      `json:"pods,omitempty"`
	Workloads []string `json:"workloads,omitempty"` // of the pods: "shop/web", "every pod in shop"
	Outside   []string `json:"outside,omitempty"`   // "every address outside", "10.0.0.0/8 except 10.1.0.0/16"
	// Groups are all workloads of which there are pods, for pictures. They are not in JSON: the
	// words of Workloads stand for them.
	Groups []string `json:"-"`
}

// mostNames is how many workloads are named in words.
const mostNames = 6

// String names the side in words.
func (s Side) String() string {
	var parts []string
	if len(s.Workloads) > 0 {
		parts = append(parts, few(s.Workloads, mostNames))
	}
	return strings.Join(append(parts, s.Outside...), ", ")
}

// Decision is the rules that decide about flows before the change, or after it.
type Decision struct {
	Text  string       `json:"text"`
	Rules []api.Origin `json:"rules,omitempty"`
}

// count returns how many differences are of a kind.
func (r Report) count(c Change) (n int) {
	for _, d := range r.Differences {
		if d.Change == c {
			n++
		}
	}
	return n
}

// Opens reports whether some flow opens.
func (r Report) Opens() bool { return r.count(Opened) > 0 }

// Closes reports whether some flow closes.
func (r Report) Closes() bool { return r.count(Closed) > 0 }

// Fits reports whether the dataplanes of all nodes can enforce what is wanted after the change.
func (r Report) Fits() bool {
	return !slices.ContainsFunc(r.Nodes, func(n Node) bool {
		return slices.ContainsFunc(n.Dataplanes, func(d Dataplane) bool { return !d.Fits })
	})
}
