package view

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/explain/reason"
	"github.com/sluice-net/sluice/internal/analysis/matrix"
	"github.com/sluice-net/sluice/renderer"
)

// Question asks about one flow. Src and Dst are "namespace/pod",
// "namespace/selector", a selector, or an address; Dst may be "svc/namespace/name".
// Port is a number, a port name of the destination, or empty for protocols without
// ports. The protocol "any" stands for that of the service's port.
type Question struct {
	Src      string       `json:"src"`
	Dst      string       `json:"dst"`
	Port     string       `json:"port,omitempty"`
	Protocol api.Protocol `json:"protocol"`
}

// Party is one side of a flow.
type Party struct {
	Name    string     `json:"name"`
	Pod     api.PodID  `json:"pod,omitzero"`   // zero if it is not a pod
	Address netip.Addr `json:"address"`        // empty for a pod without an address yet
	Node    string     `json:"node,omitempty"` // of the pod
}

// Service is the service that a question names: the flow is the one after service translation. It
// is absent if the destination is not a service.
type Service struct {
	Name      string       `json:"name"`             // namespace/name
	Address   netip.Addr   `json:"address,omitzero"` // that the question names, if it has no service name
	Port      uint16       `json:"port"`             // of the service
	PortName  string       `json:"portName,omitempty"`
	Protocol  api.Protocol `json:"protocol"`
	Endpoints int          `json:"endpoints"` // addresses, of both families; when 0 nothing is allowed
	// Note is why there is no endpoint, or another remark about them.
	Note string `json:"note,omitempty"`
}

// Injection is what the dataplane did with a packet.
type Injection struct {
	Src      Party      `json:"src"`
	Dst      Party      `json:"dst"`
	Flow     api.Flow   `json:"flow"`
	Verdict  api.Action `json:"verdict"`
	Reason   string     `json:"reason"`
	Hops     []Hop      `json:"hops,omitempty"`
	Expected api.Action `json:"expected"` // the oracle's verdict, as far as this node decides
	Service  *Service   `json:"service,omitempty"`
}

// Hop is one interface and direction at which a packet passed or was dropped.
type Hop struct {
	Interface string         `json:"interface"`
	Pod       api.PodID      `json:"pod,omitzero"` // whose interface it is; zero at an uplink
	Direction api.Direction  `json:"direction"`    // the pod's view, the node's at an uplink
	Action    api.Action     `json:"action"`
	By        string         `json:"by"` // what decided: an ACL and rule, a session, nothing
	Table     string         `json:"table,omitempty"`
	Rule      int            `json:"rule,omitzero"`
	Match     api.ContivRule `json:"match,omitzero"`
	Origins   []api.Origin   `json:"origins,omitempty"`
}

// Watch requests verdicts of packets as they are made. An empty field, except Action, matches all
// packets. All fields have to match.
type Watch struct {
	// Action is "deny" (also when it is empty), "permit", "audit", or "all". Of permitted packets,
	// only those that begin a flow are reported.
	Action string `json:"action,omitempty"`
	// WatchSide is about a pod at either end, and its Port about the destination.
	WatchSide
	From      WatchSide      `json:"from,omitzero"`
	To        WatchSide      `json:"to,omitzero"`
	Policy    string         `json:"policy,omitempty"`    // name, or namespace/name, of a policy that the rule is of
	Direction *api.Direction `json:"direction,omitempty"` // the pod's view
	Protocol  api.Protocol   `json:"protocol,omitzero"`
	// Since is from how long ago on, in nanoseconds, verdicts are reported first that the agent has
	// kept.
	Since time.Duration `json:"since,omitzero"`
	// Past ends the answer after the verdicts that the agent has kept.
	Past bool `json:"past,omitempty"`
}

// WatchSide is what an end of a flow must be.
type WatchSide struct {
	Namespace string       `json:"namespace,omitempty"` // of the pod
	Pod       string       `json:"pod,omitempty"`       // part of the name of the pod
	Labels    string       `json:"labels,omitempty"`    // a selector of the pod
	Peer      netip.Prefix `json:"peer,omitzero"`       // that contains the address
	Port      uint16       `json:"port,omitzero"`
}

// The values of Watch.Action.
const (
	WatchDenied    = "deny"
	WatchPermitted = "permit"
	WatchAll       = "all"
	WatchAudit     = "audit" // what is permitted, and policies in audit mode would deny
)

// maxFilter bounds the text of a filter, in bytes.
const maxFilter = 4096

// Check returns an error that names an invalid value and the valid ones.
func (w Watch) Check() error {
	switch w.Action {
	case "", WatchDenied, WatchPermitted, WatchAll, WatchAudit:
	default:
		return fmt.Errorf("action %.100q: want %s, %s, %s or %s", w.Action, WatchDenied, WatchPermitted, WatchAll, WatchAudit)
	}
	if w.Since < 0 {
		return fmt.Errorf("since %s: want a time that is not negative", w.Since)
	}
	if len(w.Policy) > maxFilter {
		return fmt.Errorf("policy: the name has %d bytes, and %d are the most", len(w.Policy), maxFilter)
	}
	return errors.Join(w.check(""), w.From.check("from-"), w.To.check("to-"))
}

// check names the fields of a side as the flags of sluicectl do.
func (s WatchSide) check(prefix string) error {
	for name, text := range map[string]string{"namespace": s.Namespace, "pod": s.Pod, "label": s.Labels} {
		if len(text) > maxFilter {
			return fmt.Errorf("%s%s: it has %d bytes, and %d are the most", prefix, name, len(text), maxFilter)
		}
	}
	if _, err := labels.Parse(s.Labels); err != nil {
		return fmt.Errorf("%slabel %.100q: %.300s", prefix, s.Labels, err.Error()) // it quotes the whole text
	}
	return nil
}

// PacketVerdict is the verdict about one packet at the interface of a pod.
type PacketVerdict struct {
	Time      time.Time     `json:"time"`
	Node      string        `json:"node,omitempty"`
	Renderer  string        `json:"renderer"`
	Pod       api.PodID     `json:"pod,omitzero"` // whose interface it is; zero when no pod is known to have it
	Interface uint32        `json:"interface"`
	Direction api.Direction `json:"direction"` // the pod's view
	Action    api.Action    `json:"action"`
	Reason    string        `json:"reason,omitempty"` // why it was dropped: policy, or what is wrong with the packet
	Flow      api.Flow      `json:"flow"`
	Src       Party         `json:"src"`
	Dst       Party         `json:"dst"`
	Bytes     uint32        `json:"bytes"`
	// Packets is how many packets the verdict is about, where the dataplane counts them and does
	// not report each; absent for one packet. Flow, Src and Dst are empty then.
	Packets uint64 `json:"packets,omitempty"`
	MatchedRule
	// Missed is how many packets have not been reported since the previous one, because there
	// were too many, or because only a sample is reported. Filters do not apply to it.
	Missed uint64 `json:"missed,omitempty"`
}

// MatchedRule is the rule that decided about a packet; empty if none did, or if it no longer
// exists.
type MatchedRule struct {
	Table   string       `json:"table,omitempty"`
	Rule    *int         `json:"rule,omitempty"`
	Match   string       `json:"match,omitempty"`
	Origins []api.Origin `json:"origins,omitempty"`
	Audit   bool         `json:"audit,omitempty"` // it permits, and policies in audit mode would deny
}

// WatchEnd is the last line of a watch that fails while the agent keeps running.
type WatchEnd struct {
	Error string `json:"error"` // why, and what to do
}

// Applied is the answer to apply and delete.
type Applied struct {
	Put       int           `json:"put"`
	Deleted   int           `json:"deleted"`
	Unchanged int           `json:"unchanged"`
	Enforced  bool          `json:"enforced"`          // by every renderer of the agent, before it answered
	Pending   string        `json:"pending,omitempty"` // why the agent does not enforce it yet
	Problems  []api.Problem `json:"problems,omitempty"`
	// Objects are the objects of the change, in its order.
	Objects []AppliedObject `json:"objects,omitempty"`
	// Skipped are the objects of the manifests that policy does not use, as kubectl names them.
	Skipped []string `json:"skipped,omitempty"`
}

// AppliedObject is the outcome for one object of a change.
type AppliedObject struct {
	Kind      string `json:"kind"` // as in keys, for example "networkpolicy"
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Result is created, configured, unchanged, deleted, or "not found" where it was to be deleted.
	Result string `json:"result"`
}

// Explanation is the verdict on one flow and the whole reason for it.
type Explanation struct {
	Src     Party          `json:"src"`
	Dst     Party          `json:"dst"`
	Flow    api.Flow       `json:"flow"`
	Allowed bool           `json:"allowed"`
	Oracle  reason.Verdict `json:"oracle"`
	// Renderers are the answers of the installed tables: of every renderer of every node that was
	// asked.
	Renderers []Answer `json:"renderers"`
	// RenderersDiffer reports whether two renderers of one node give different answers.
	RenderersDiffer bool `json:"renderersDiffer,omitempty"`
	// Packets are what the embedded dataplanes did with the first packet of the flow.
	Packets []Packet `json:"packets,omitempty"`
	Service *Service `json:"service,omitempty"`
	// Stale is why the newest changes of the store may be missing; empty where they are not.
	Stale string `json:"stale,omitempty"`
}

// Answer is what one renderer's installed tables do with a flow.
type Answer struct {
	Renderer string `json:"renderer"`
	Allowed  bool   `json:"allowed"`
	// Decides lists the directions (the pod's view) that this node decides. For a flow from or to
	// pods of other nodes these are not all, or none.
	Decides   []api.Direction     `json:"decides,omitempty"`
	Agrees    bool                `json:"agrees"`            // with the oracle, about these directions
	Pending   bool                `json:"pending,omitempty"` // the newest state is not enforced, so it need not agree
	Decisions []renderer.Decision `json:"decisions,omitempty"`
	// Meanings are the rules of Decisions in words, with the content of sets in place of their
	// names; empty from an older agent.
	Meanings []string `json:"meanings,omitempty"`
	Node     string   `json:"node,omitempty"` // empty where all pods are those of one node
	// Unasked is why the renderer was not asked; Agrees has no meaning then.
	Unasked string `json:"unasked,omitempty"`
	// Foreign is what other programs have installed in the dataplane that takes effect before the
	// decisions.
	Foreign []string `json:"foreign,omitempty"`
	// Origins are the policy rules that the decisions name, each compared with the specification.
	// When one table denies, only tables that deny count.
	Origins []NamedOrigin `json:"origins,omitempty"`
	// Unnamed are the policy rules that decide according to the specification, as far as this node
	// decides, but that no decision names.
	Unnamed []api.Origin `json:"unnamed,omitempty"`
}

// NamedOrigin is a rule of a policy that a renderer names for a decision.
type NamedOrigin struct {
	api.Origin
	Role OriginRole `json:"role"`
}

// OriginRole is the role of a named rule according to the specification.
type OriginRole string

// The roles. A table's rule may represent several rules of policies, of which only some match the
// flow.
const (
	OriginDecides OriginRole = "decides" // by the specification as well
	OriginMatches OriginRole = "matches" // the flow, or isolates the pod, and yet does not decide
	OriginMerged  OriginRole = "merged"  // into the table's rule; it does not match the flow
	OriginPasses  OriginRole = "passes"  // the flow on to what decides
	OriginAudits  OriginRole = "audits"  // would deny it, if policies in audit mode were enforced
	OriginBehind  OriginRole = "behind"  // what decides; by the specification it is not asked
	OriginUnknown OriginRole = "unknown" // no such policy isolates an end of the flow
)

// Packet is what the embedded dataplane of a node did with a packet.
type Packet struct {
	Node     string     `json:"node,omitempty"`
	Verdict  api.Action `json:"verdict"`
	Reason   string     `json:"reason"`
	Expected api.Action `json:"expected"` // by the specification, as far as the node decides
	// Unsent is of older agents only: why no packet was sent. Then the verdict is the
	// expected one.
	Unsent string `json:"unsent,omitempty"`
}

// Matrix is which pods can talk to which.
type Matrix struct {
	matrix.Matrix
	// Differ counts the packets whose verdict differs from the oracle's.
	Differ int `json:"differ"`
}

// Change asks the agent to write and delete objects in its store. Values are
// protobuf in canonical form (api/model).
type Change struct {
	Put    []ChangedObject `json:"put,omitempty"`
	Delete []ChangedObject `json:"delete,omitempty"`
}

// Check is the result of comparing a renderer's dataplane with what was installed.
type Check struct {
	Node     string   `json:"node,omitempty"` // that it is from, where agents of several are asked
	Renderer string   `json:"renderer"`
	Objects  int      `json:"objects"` // that were read back
	Drift    []string `json:"drift,omitempty"`
	// Repaired counts the differences repaired since the agent started, by kind.
	Repaired map[string]uint64 `json:"repaired,omitempty"`
	Foreign  []string          `json:"foreign,omitempty"` // what other programs have installed
	Error    string            `json:"error,omitempty"`   // why it could not be read
}

// Log is the end of an agent's log.
type Log struct {
	Lines []string `json:"lines"`
}

// Objects is the state of a cluster as an agent's store holds it, without secrets: a store has
// none.
type Objects struct {
	Node string `json:"node,omitempty"` // of the agent
	// DenyNode reports whether policies apply to traffic between a pod and its own node.
	DenyNode bool `json:"denyNode,omitempty"`
	// Stale is why this is the state that the agent enforces, and not that of the store.
	Stale   string          `json:"stale,omitempty"`
	Objects []ChangedObject `json:"objects"`
}

// ChangedObject names an object and, for a put, holds its value.
type ChangedObject struct {
	Kind      string `json:"kind"` // as in keys, for example "networkpolicy"
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Value     []byte `json:"value,omitempty"`
}
