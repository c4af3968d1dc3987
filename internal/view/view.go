// Package view is what the agent shows: the JSON that its debug API serves and
// that sluicectl prints. Fields are only ever added.
package view

import (
	"net/netip"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/oracle"
)

// Pod is a pod as the agent sees it.
type Pod struct {
	Pod       api.PodID         `json:"pod"`
	Node      string            `json:"node,omitempty"`
	Addresses []netip.Addr      `json:"addresses,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	// State is "enforced" (local, with an address), "no interface" (the same, but the
	// vswitch has no interface of it yet), "pending" (local, no address yet), "remote",
	// or "ignored: " and why (host network, finished).
	State string `json:"state"`
	// Isolated lists the directions (the pod's view) that policies isolate; known
	// for local pods only.
	Isolated []api.Direction `json:"isolated,omitempty"`
	Policies []api.PolicyID  `json:"policies,omitempty"`
	// Problems are what is wrong with the pod's object.
	Problems []api.Problem `json:"problems,omitempty"`
	// InterfaceTag is the tag by which the ACL renderer finds the interface.
	InterfaceTag string `json:"interfaceTag,omitempty"`
}

// Policy is a policy as the agent sees it.
type Policy struct {
	Policy   api.PolicyID `json:"policy"`
	Selector string       `json:"selector"`
	// Tier is admin, networkpolicy or baseline. Priority is that within the tier, low
	// first; policies of the tier networkpolicy have none.
	Tier     string          `json:"tier"`
	Priority *int            `json:"priority,omitempty"`
	Isolates []api.Direction `json:"isolates,omitempty"`
	Rules    int             `json:"rules"`
	// Pods are the local pods it applies to.
	Pods []api.PodID `json:"pods,omitempty"`
	// Enforced reports whether the agent's node enforces the policy as it is written.
	Enforced Enforcement `json:"enforced"`
	// Pending says what is waited for; empty unless Enforced is EnforcedPending.
	Pending string `json:"pending,omitempty"`
	// Problems say what is not enforced and why.
	Problems []api.Problem `json:"problems,omitempty"`
	// Notes say what matches less than it might, without being a mistake.
	Notes []api.Problem `json:"notes,omitempty"`
}

// Enforcement says how far a policy is enforced.
type Enforcement string

// What Enforcement can be. A policy that selects no pod of the node is enforced.
const (
	EnforcedFully   Enforcement = "yes"
	EnforcedPartly  Enforcement = "in part" // there are problems; what they are about is closed
	EnforcedPending Enforcement = "pending" // a renderer, or the interface of a pod, is waited for
	EnforcedUnknown Enforcement = "unknown" // of a node: no agent reports on it
)

// PodRelations are what policies have to do with a pod.
type PodRelations struct {
	Selecting []api.PolicyID    `json:"selecting,omitempty"`
	Naming    []oracle.RuleText `json:"naming,omitempty"` // the rules that name it as a peer
}

// Set is an address set.
type Set struct {
	ID      api.SetID      `json:"id"`
	Meaning string         `json:"meaning"`
	Members []netip.Prefix `json:"members,omitempty"`
}

// Table is an installed table of a renderer.
type Table struct {
	Renderer string      `json:"renderer"`
	Table    string      `json:"table"`
	Kind     string      `json:"kind"` // local or global
	Pods     []api.PodID `json:"pods,omitempty"`
	Rules    int         `json:"rules"`
	Entries  int         `json:"entries"` // what the rules take in the stack
	// Objects name what holds the table in the stack, for example "acl 3".
	Objects []string `json:"objects,omitempty"`
}

// Rule is one rule of a table.
type Rule struct {
	Renderer string         `json:"renderer"`
	Table    string         `json:"table"`
	Index    int            `json:"index"`
	Rule     api.ContivRule `json:"rule"`
	// Meaning is the rule for people, with what its sets stand for in place of their names.
	Meaning string       `json:"meaning,omitempty"`
	Pods    []api.PodID  `json:"pods,omitempty"` // that have the table
	Origins []api.Origin `json:"origins,omitempty"`
	// Hits is how many flows the rule has decided since its table is there; absent
	// when the vswitch does not count.
	Hits *uint64 `json:"hits,omitempty"`
	// CountedWith is the index of the rule whose counter includes that of this one, because
	// both share entries in the dataplane; absent for a rule with its own counter.
	CountedWith *int `json:"countedWith,omitempty"`
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
	// Waiting names the pods of the node whose new rules take so long to make that others come
	// first.
	Waiting   []string         `json:"waiting,omitempty"`
	Sets      int              `json:"sets"`
	Renderers []RendererStatus `json:"renderers"`
	Problems  []api.Problem    `json:"problems,omitempty"`
	// Store says how well the source of the state is followed.
	Store StoreStatus `json:"store"`
}

// StoreStatus says how fresh the state is that is enforced.
type StoreStatus struct {
	// Following reports whether changes of the store are received, Since since when that is
	// as it is, Heard when the store said something last.
	Following bool      `json:"following"`
	Since     time.Time `json:"since,omitzero"`
	Heard     time.Time `json:"heard,omitzero"`
	Error     string    `json:"error,omitempty"` // why it is not followed
	// Saved is from when the state is that is enforced, when it is that of a file because
	// the store has not answered since the agent started.
	Saved time.Time `json:"saved,omitzero"`
	// Retained is not set any more.
	Retained time.Time `json:"retained,omitzero"`
	// Incomplete is why the store is not believed to hold the whole state of the cluster; what
	// was known stays in force. It is empty while the store is believed.
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

// NodeEnforcement reports whether a node enforces what was asked for.
type NodeEnforcement struct {
	NodeStatus
	// Wanted is the revision of the store that is asked for: that of a policy, or of the
	// newest change of any object.
	Wanted   int64       `json:"wanted"`
	Enforced Enforcement `json:"enforced"`
	Why      string      `json:"why,omitempty"`
}

// RendererStatus is the state of one renderer.
type RendererStatus struct {
	Name    string    `json:"name"`
	InSync  bool      `json:"inSync"`
	Commits uint64    `json:"commits"`
	Error   string    `json:"error,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	Installed
	// Refused reports whether only a change of policies, or of the dataplane, mends Error: the
	// commit is not retried before.
	Refused bool `json:"refused,omitempty"`
	// Open counts connections that policy no longer permits and that the renderer could not
	// end: their applications were notified to close them.
	Open int `json:"open,omitempty"`
	// Foreign says what somebody else has installed where the renderer enforces policy, and what
	// that means.
	Foreign []string `json:"foreign,omitempty"`
	Deferred
	SessionTable
	// Dataplane says what is wrong while the dataplane is gone, or does not answer.
	Dataplane string `json:"dataplane,omitempty"`
	// Blocked names the interfaces that let nothing pass, because the pod that they belong to is
	// not known.
	Blocked []string `json:"blocked,omitempty"`
}

// Installed counts what a renderer has installed in its dataplane.
type Installed struct {
	Tables  int `json:"tables"`
	Rules   int `json:"rules"`
	Entries int `json:"entries"` // what the rules take in the dataplane
}

// Deferred is what waits so that changes do not pause the dataplane too often.
type Deferred struct {
	// Waiting counts members that are to join sets, and that wait because changes have paused the
	// dataplane; WaitingSince is since when the oldest does.
	Waiting      int       `json:"waiting,omitempty"`
	WaitingSince time.Time `json:"waitingSince,omitzero"`
	// Behind is since when some interfaces have older rules, because their turn to be changed has
	// not come.
	Behind time.Time `json:"behind,omitzero"`
}

// SessionTable is how full the connection table of a dataplane is.
type SessionTable struct {
	// Sessions counts the flows that the dataplane remembers, and SessionsMax those that it may; 0
	// where that is not known.
	Sessions    uint64 `json:"sessions,omitempty"`
	SessionsMax uint64 `json:"sessionsMax,omitempty"`
}
