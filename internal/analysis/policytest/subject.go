package policytest

import (
	"context"
	"net/netip"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/ksr/kinds"
)

// Subject answers the questions of a test about the state that it has received. It is used by one
// goroutine at a time.
type Subject interface {
	// Name identifies the subject, for example "oracle" or "acl".
	Name() string
	// Apply changes the state that the subject answers for: objects that come or
	// change, sorted so that what is referred to comes first, and objects that go.
	// It returns when the change is enforced. Objects must not be changed.
	Apply(ctx context.Context, upserts []kinds.Object, deletes []model.ID) error
	// Ask returns the subject's verdict about the first packet of a flow. What was
	// asked before must not matter: an allowed flow opens nothing for later ones.
	Ask(ctx context.Context, q Question) (Answer, error)
	// Close frees what the subject holds. A Runner does not call it.
	Close() error
}

// Scope is a Subject that has nothing to say about some questions.
type Scope interface {
	// NotApplicable reports whether the question does not apply to the subject.
	NotApplicable(q Question) bool
}

// Question asks about the first packet of a flow. At least one end is a pod.
type Question struct {
	Src, Dst Endpoint
	// Flow has the addresses of Src and Dst, of one family.
	Flow api.Flow
	// Explain requests a Why in the answer.
	Explain bool
}

// Endpoint is one end of a flow.
type Endpoint struct {
	// Name is how the test calls the endpoint, for example "shop/web-0",
	// "internet" or "10.10.1.10".
	Name string
	// Pod is the pod that has the address; zero for an address outside of the
	// cluster and for that of a node.
	Pod  api.PodID
	Addr netip.Addr
}

// Answer is the verdict of a subject.
type Answer struct {
	Allowed bool
	Why     string // one line for people; may be empty unless the question wants it
}

// sourcePort is the source port of every flow with ports: no policy can tell
// source ports apart. It is the first that systems use for clients.
const sourcePort = 49152

// question makes the question about a port between two ends of one family.
func question(src, dst Endpoint, port Port) Question {
	f := api.Flow{Src: src.Addr, Dst: dst.Addr, Protocol: port.Protocol, DstPort: port.Number}
	switch {
	case port.Protocol.HasPorts():
		f.SrcPort = sourcePort
	case src.Addr.Is6():
		f.Protocol = api.ICMPv6
	}
	return Question{Src: src, Dst: dst, Flow: f}
}

// sameFamily reports whether packets between two ends exist.
func sameFamily(a, b Endpoint) bool { return a.Addr.Is4() == b.Addr.Is4() }
