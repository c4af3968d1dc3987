package acl

import (
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"go.fd.io/govpp/adapter"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/vpp"
)

// Options configure a Renderer.
type Options struct {
	Log *slog.Logger // nil discards

	// Adapter is the vswitch in this process. The Renderer connects and disconnects it. If it is
	// nil, Socket is the path of VPP's API socket.
	Adapter adapter.VppAPI
	Socket  string

	// Timeout of one call to the vswitch; 0 is vpp.DefaultTimeout.
	Timeout time.Duration

	// Uplinks are names or tags of interfaces that connect the node with other nodes, in addition
	// to those with UplinkTag. Each must exist.
	Uplinks []string

	Pods  Pods
	Flows Flows
	Stats Stats

	// Orientation is where the rules for what pods send are applied. Split requires
	// Flows.Established to be Keep.
	Orientation Orientation

	// Services are prefixes that the vswitch translates to pod addresses behind input ACLs, for
	// example the addresses of Kubernetes services. Policy decides about such traffic on output.
	Services []netip.Prefix

	// Infra is the traffic that is exempt from policy.
	Infra renderer.Infra

	// Memory is the limit, in bytes, of the vswitch memory that ACLs may use at any moment. 0 reads
	// VPP's heap size through Stats.Socket. Tables that do not fit are refused; see ErrTooLarge.
	Memory uint64

	// Audit is the interval between audits. OnChange is called, and an Apply reads the ACL lists of
	// interfaces and a part of the ACLs, compares them with what was installed, and repairs
	// differences. 0 means 10 seconds; a negative value disables audits. Every sixth audit reads a
	// given ACL again.
	Audit time.Duration

	// OnChange is called when an Apply would have work to do although nothing was rendered. That is
	// after a (re)connection, when interfaces come or go, and when an audit is due. It runs in another
	// goroutine, and must neither block nor call the Renderer. It may be nil.
	OnChange func()
}

// Pods determines which interfaces belong to pods. The Renderer calls the functions while it holds
// its lock: they must neither block nor call it. The implementation calls InterfacesChanged when a
// result changes.
type Pods struct {
	// Bindings finds the interfaces of pods without tags. It may be nil.
	Bindings PodBindings

	// Elsewhere reports whether a pod needs no interface because it is on a host stack where
	// another renderer enforces policy. The Renderer then does not wait for an interface. Every
	// audit calls it again. Nil means no pod.
	Elsewhere func(pod api.PodID) bool

	// Refuses returns the reason why an interface that sluice-cni made, and that has the pod's tag,
	// must not get the rules of the pod; the interface is then blocked. It returns "" otherwise.
	// PodIdentities implements it. Nil refuses no interface.
	Refuses func(pod api.PodID, m vpp.Made) string

	// BlockUnknown blocks interfaces that belong to a pod, by tag or by Bindings, until the pod is
	// known. A pod that is created, or recreated, then exchanges no traffic before its policy is
	// enforced. Without BlockUnknown the traffic of such interfaces passes.
	BlockUnknown bool
}

// Flows configures how the vswitch treats open flows. It also affects the ACLs of other owners.
type Flows struct {
	// Established is what happens to open flows that policy no longer permits.
	Established Established

	// Grace is how long after its start the vswitch lets pods continue flows that they had opened
	// before, when Established is Revoke. 0 disables it. During that time, and for the flows of
	// that time, what a pod sends permits the replies.
	Grace time.Duration

	// UDPIdle is the idle timeout of sessions of UDP and of other protocols except TCP; it is
	// rounded up to seconds. 0 keeps the vswitch's setting, which is 10 minutes in VPP.
	UDPIdle time.Duration

	// SessionTable is the maximum number of sessions in the vswitch. 0 keeps its setting, which is
	// 500 000 in VPP. VPP allocates the table from its main heap when the first interface gets an
	// ACL. A size that does not fit, or that exceeds an existing table, is logged and not applied.
	SessionTable uint32
}

// Stats configures where the counters of the vswitch are read.
type Stats struct {
	// Socket is the path of VPP's statistics socket. Counters and the use of VPP's heap are read
	// from it. It is ignored if Counters is set.
	Socket string

	// Counters returns the packet counter of each entry of an ACL, or false for an unknown ACL. Nil
	// means that nothing counts. It must not call the Renderer.
	Counters func(aclIndex uint32) (packets []uint64, ok bool)
}

// check validates the options and fills in defaults.
func (o Options) check() (Options, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Audit == 0 {
		o.Audit = defaultAudit
	}
	if o.Orientation == Split && o.Flows.Established != Keep {
		return o, errSplit
	}
	var err error
	o.Infra, err = o.Infra.Check()
	return o, err
}

// Established is what happens to an open flow that policy no longer permits. All nodes of a cluster
// should use the same value, because a flow may have its ends on two nodes.
type Established uint8

const (
	// Revoke cuts such a flow: its next packet in the direction that policy decides is denied.
	Revoke Established = iota
	// Keep lets open flows live until they end or time out. Policy decides only about new flows.
	Keep
)

// String returns "revoke" or "keep".
func (e Established) String() string {
	if e == Keep {
		return "keep"
	}
	return "revoke"
}

// UnmarshalText parses the output of String.
func (e *Established) UnmarshalText(text []byte) error {
	switch string(text) {
	case "revoke":
		*e = Revoke
	case "keep":
		*e = Keep
	default:
		return fmt.Errorf("established %q: want revoke or keep", text)
	}
	return nil
}

const (
	// defaultAudit is the default interval between audits.
	defaultAudit = 10 * time.Second
)
