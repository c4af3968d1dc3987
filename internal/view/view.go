// Package view defines the JSON that the agent's debug API serves and sluicectl prints. Fields are
// only ever added.
package view

import (
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
)

// StaleHeader is the header of an answer that says why the newest changes of the store may be missing in
// it. Without it they are not.
const StaleHeader = "Sluice-Stale"

// Pod is a pod as the agent sees it.
type Pod struct {
	Pod       api.PodID         `json:"pod"`
	Node      string            `json:"node,omitempty"`
	Addresses []netip.Addr      `json:"addresses,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	// State is "enforced" (local, with an address), "no interface" (the same, but the vswitch has
	// no interface of it yet), or "pending" (local, no address yet). Pods of other nodes are
	// "remote". Pods to which no policy applies are "ignored: " and why (host network, finished).
	State string `json:"state"`
	// Isolated lists the directions (the pod's view) that policies isolate; known
	// for local pods only.
	Isolated []api.Direction `json:"isolated,omitempty"`
	Policies []api.PolicyID  `json:"policies,omitempty"`
	// Problems are the errors in the pod's object.
	Problems []api.Problem `json:"problems,omitempty"`
	// InterfaceTag is the tag by which the ACL renderer finds the interface.
	InterfaceTag string `json:"interfaceTag,omitempty"`
}

// Policy is a policy as the agent sees it.
type Policy struct {
	Node     string       `json:"node,omitempty"` // that it is from, where agents of several are asked
	Policy   api.PolicyID `json:"policy"`
	Selector string       `json:"selector"`
	// Tier is admin, networkpolicy or baseline. Priority is that within the tier, low
	// first; policies of the tier networkpolicy have none.
	Tier     string          `json:"tier"`
	Priority *int            `json:"priority,omitempty"`
	Isolates []api.Direction `json:"isolates,omitempty"`
	Rules    int             `json:"rules"`
	Audit    bool            `json:"audit,omitempty"` // in audit mode: it denies nothing
	// Pods are the local pods it applies to.
	Pods []api.PodID `json:"pods,omitempty"`
	// Enforced is how far the agent's node enforces the policy.
	Enforced Enforcement `json:"enforced"`
	// Pending is what enforcement waits for; empty unless Enforced is EnforcedPending.
	Pending string `json:"pending,omitempty"`
	// Problems are the parts that are not enforced, and why.
	Problems []api.Problem `json:"problems,omitempty"`
	// Notes are parts that match less than one might expect, but are not errors.
	Notes []api.Problem `json:"notes,omitempty"`
}

// Enforcement is how far a policy is enforced.
type Enforcement string

// The values of Enforcement. A policy that selects no pod of the node is enforced.
const (
	EnforcedFully   Enforcement = "yes"
	EnforcedPartly  Enforcement = "in part" // there are problems; the traffic that they concern is denied
	EnforcedPending Enforcement = "pending" // enforcement waits for a renderer, or for a pod's interface
	EnforcedUnknown Enforcement = "unknown" // of a node: it has no agent that reports
)

// Namespace is a namespace as the agent sees it.
type Namespace struct {
	Namespace string            `json:"namespace"`
	Known     bool              `json:"known"` // its object has arrived
	Labels    map[string]string `json:"labels,omitempty"`
	Pods      int               `json:"pods"`
	Policies  int               `json:"policies"`
}

// Limit is a limit, and what is taken of it.
type Limit struct {
	Node  string `json:"node,omitempty"` // that it is from, where agents of several are asked
	Limit string `json:"limit"`          // its name: what is limited and where, as in "quota/shop" or "acl/entries/list"
	// Of is what it is for: policies, an object, or a renderer.
	Of   string `json:"of"`
	What string `json:"what"` // what is counted, for whom
	// Namespace is that of the quota, or the one that takes most.
	Namespace string `json:"namespace,omitempty"`
	Used      *int   `json:"used,omitempty"` // without what is closed; nil: not counted
	Most      int    `json:"most,omitempty"` // 0: none
	State     string `json:"state"`          // LimitOK, LimitHalf or LimitExceeded
	// Closed are the policies that do not fit.
	Closed []ClosedPolicy `json:"closed,omitempty"`
}

// The values of Limit.State.
const (
	LimitOK       = "ok"
	LimitHalf     = "half used"
	LimitExceeded = "exceeded"
)

// ClosedPolicy is a policy that a limit closes, in whole or in part.
type ClosedPolicy struct {
	Policy api.PolicyID `json:"policy"`
	Reason string       `json:"reason"` // which limit, and what helps
}

// PodRelations are the policies that select a pod, and the rules that name it as a peer.
type PodRelations struct {
	Selecting []api.PolicyID    `json:"selecting,omitempty"`
	Naming    []oracle.RuleText `json:"naming,omitempty"` // the rules that name it as a peer
}

// Set is an address set.
type Set struct {
	Node    string         `json:"node,omitempty"` // that it is from, where agents of several are asked
	ID      api.SetID      `json:"id"`
	Meaning string         `json:"meaning"`
	Members []netip.Prefix `json:"members,omitempty"`
}

// Table is an installed table of a renderer.
type Table struct {
	Node     string      `json:"node,omitempty"` // that it is from, where agents of several are asked
	Renderer string      `json:"renderer"`
	Table    string      `json:"table"`
	Kind     string      `json:"kind"` // local or global
	Pods     []api.PodID `json:"pods,omitempty"`
	Rules    int         `json:"rules"`
	Entries  int         `json:"entries"` // that the rules take in the dataplane
	// Objects are the names of the dataplane's objects that hold the table, for example "acl 3".
	Objects []string `json:"objects,omitempty"`
}

// Rule is one rule of a table.
type Rule struct {
	Node     string         `json:"node,omitempty"` // that it is from, where agents of several are asked
	Renderer string         `json:"renderer"`
	Table    string         `json:"table"`
	Index    int            `json:"index"`
	Rule     api.ContivRule `json:"rule"`
	// Meaning is the rule in words, with the content of sets in place of their names.
	Meaning string       `json:"meaning,omitempty"`
	Pods    []api.PodID  `json:"pods,omitempty"` // that have the table
	Origins []api.Origin `json:"origins,omitempty"`
	// Packets is how many packets the rule has decided since its table was installed; absent if the
	// dataplane does not count.
	Packets *uint64 `json:"packets,omitempty"`
	// CountedWith is the index of the rule whose counter includes that of this one, because
	// both share entries in the dataplane; absent for a rule with its own counter.
	CountedWith *int `json:"countedWith,omitempty"`
}

// Audited is what a policy in audit mode would deny of the traffic of some workloads of the node.
type Audited struct {
	Node      string        `json:"node,omitempty"` // that it is from, where agents of several are asked
	Policy    api.PolicyID  `json:"policy"`
	Direction api.Direction `json:"direction"` // the pod's view
	// Rule is the index of the rule that would deny in the policy, or -1 for its isolation.
	Rule     int    `json:"rule"`
	Renderer string `json:"renderer"`
	// Workloads are what the pods run whose traffic is counted together, as NAMESPACE/APPLICATION.
	Workloads []string    `json:"workloads,omitempty"`
	Pods      []api.PodID `json:"pods,omitempty"`
	// Packets is how much would have been denied since the rules of these pods last changed. It
	// counts first packets of flows, in the kernel all packets. It is absent if the dataplane does
	// not count.
	Packets *uint64 `json:"packets,omitempty"`
	// Total is the same for all pods of the node and this rule of the policy, also by rules that
	// have changed since.
	Total *uint64 `json:"total,omitempty"`
}

// Status is the state of the agent.
type Status struct {
	Version  string `json:"version"`
	Node     string `json:"node,omitempty"`
	Source   string `json:"source"`   // where state comes from
	Revision int64  `json:"revision"` // of the store, enforced by every renderer
	Seen     int64  `json:"seen"`     // of the store, received
	Pods     int    `json:"pods"`
	Local    int    `json:"local"`
	Policies int    `json:"policies"`
	// Unenforced is the number of policies that are not or only partially enforced.
	Unenforced int `json:"unenforced"`
	// Waiting names the pods of the node whose newest rules some dataplane does not enforce yet.
	Waiting   []string         `json:"waiting,omitempty"`
	Sets      int              `json:"sets"`
	Renderers []RendererStatus `json:"renderers"`
	Problems  []api.Problem    `json:"problems,omitempty"`
	// Store is the state of the watch on the source of the state.
	Store StoreStatus `json:"store"`
}

// StoreStatus is how fresh the enforced state is.
type StoreStatus struct {
	// Following reports whether changes of the store are received, Since is when that last changed,
	// and Heard when the store answered last.
	Following bool      `json:"following"`
	Since     time.Time `json:"since,omitzero"`
	Heard     time.Time `json:"heard,omitzero"`
	Error     string    `json:"error,omitempty"` // why it is not followed
	// Saved is the time from which the enforced state is. It is set only if that state is from a
	// file, because the store has not answered since the agent started.
	Saved time.Time `json:"saved,omitzero"`
	// Retained is obsolete and never set.
	Retained time.Time `json:"retained,omitzero"`
	// Incomplete is why the agent does not accept the store as the whole state of the cluster; the
	// last accepted state stays in force. It is empty while the store is accepted.
	Incomplete string `json:"incomplete,omitempty"`
	// Cluster is the cluster whose state is in force, as the store names it.
	Cluster string `json:"cluster,omitempty"`
	// Reflector is the active reflector; absent while there is none, since Unwritten.
	Reflector *Reflector `json:"reflector,omitempty"`
	Unwritten time.Time  `json:"unwritten,omitzero"`
}

// AcceptedStore is a state of a store that an operator accepted.
type AcceptedStore struct {
	Prefix     string       `json:"prefix"`
	Cluster    string       `json:"cluster"`
	Generation int64        `json:"generation"` // from which on agents trust it
	Objects    model.Counts `json:"objects"`
}

// Reflector is a sluice-ksr that follows the cluster and writes its state.
type Reflector struct {
	Identity string    `json:"identity"`
	Version  string    `json:"version,omitempty"`
	Since    time.Time `json:"since,omitzero"`
}

// NodeStatus is what an agent publishes about itself in the store.
type NodeStatus struct {
	Node      string             `json:"node"`
	Version   string             `json:"version"`
	Level     int                `json:"level,omitempty"` // of the model that it enforces, see model.Level
	Revision  int64              `json:"revision"`        // enforced by every renderer
	Seen      int64              `json:"seen"`
	Following bool               `json:"following"`
	Time      time.Time          `json:"time"`
	Renderers []NodeRenderer     `json:"renderers,omitempty"`
	Policies  []UnenforcedPolicy `json:"policies,omitempty"` // not or only partially enforced, the first 100
	More      int                `json:"more,omitempty"`     // policies that are not in Policies
}

// NodeRenderer is the state of a renderer of a node.
type NodeRenderer struct {
	Name   string `json:"name"`
	InSync bool   `json:"inSync"`
	Error  string `json:"error,omitempty"`
}

// UnenforcedPolicy is a policy that a node does not enforce as it is written.
type UnenforcedPolicy struct {
	Policy   api.PolicyID `json:"policy"`
	Enforced Enforcement  `json:"enforced"`
	Why      string       `json:"why,omitempty"`
}

// NodeEnforcement is whether a node enforces a revision.
type NodeEnforcement struct {
	NodeStatus
	// Wanted is that revision of the store: that of a policy, or of the newest change of any
	// object.
	Wanted   int64       `json:"wanted"`
	Enforced Enforcement `json:"enforced"`
	Why      string      `json:"why,omitempty"`
}

// RendererStatus is the state of one renderer.
type RendererStatus struct {
	Name    string    `json:"name"`
	InSync  bool      `json:"inSync"`
	Applied uint64    `json:"applied"`
	Error   string    `json:"error,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	// BusySince is when its change of the dataplane began that takes longer than a moment; what
	// comes meanwhile waits for it, in this renderer alone.
	BusySince time.Time `json:"busySince,omitzero"`
	Installed
	// Refused reports whether only a change of policies or of the dataplane can resolve Error: the
	// commit is not retried before.
	Refused bool `json:"refused,omitempty"`
	// Open counts connections that policy no longer permits and that the renderer could not
	// end: their applications were notified to close them.
	Open int `json:"open,omitempty"`
	// Foreign is what other programs have installed where the renderer enforces policy, and the
	// consequence.
	Foreign []string `json:"foreign,omitempty"`
	SessionTable
	// Dataplane is the error while the dataplane is gone or does not answer.
	Dataplane string `json:"dataplane,omitempty"`
	// Blocked names the interfaces that are blocked because their pod is unknown.
	Blocked []string `json:"blocked,omitempty"`
}

// Installed counts what a renderer has installed in its dataplane.
type Installed struct {
	Tables  int `json:"tables"`
	Rules   int `json:"rules"`
	Entries int `json:"entries"` // what the rules take in the dataplane
}

// SessionTable is how full the connection table of a dataplane is.
type SessionTable struct {
	// Sessions counts the tracked connections, and SessionsMax is the size of the table; 0 if
	// unknown.
	Sessions    uint64 `json:"sessions,omitempty"`
	SessionsMax uint64 `json:"sessionsMax,omitempty"`
}
