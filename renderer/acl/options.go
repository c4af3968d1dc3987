package acl

import (
	"log/slog"
	"net/netip"
	"time"

	"go.fd.io/govpp/adapter"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/vpp"
)

// Options of a Renderer.
type Options struct {
	Log *slog.Logger // nil discards

	// Adapter is the vswitch in this process; the Renderer connects and
	// disconnects it. When it is nil, Socket is the path of VPP's API socket.
	Adapter adapter.VppAPI
	Socket  string

	// Timeout of one call to the vswitch; 0 is vpp.DefaultTimeout.
	Timeout time.Duration

	// Uplinks are names or tags of interfaces that connect the node with other
	// nodes, beside those with UplinkTag. Each of them must exist.
	Uplinks []string

	Pods   Pods
	Flows  Flows
	Pacing Pacing
	Stats  Stats

	// Orientation says where packets meet the rules for what pods send. Split needs
	// Flows.Established to be Keep.
	Orientation Orientation

	// Services are blocks of addresses that the vswitch translates to those of pods behind the ACLs
	// of inputs, as those of Kubernetes services. What a pod sends there is judged as it leaves.
	Services []netip.Prefix

	// Infra is what passes whatever policy says.
	Infra renderer.Infra

	// Memory is how many bytes of the vswitch's memory the ACLs may take at any moment; 0 asks VPP
	// how much it has, by Stats.Socket. Tables that do not fit are refused, see ErrTooLarge.
	Memory uint64

	// OnChange is called when a Commit would have something to do although nothing was rendered:
	// after a (re)connection, when interfaces come or go, when what waited (Pacing) is due,
	// and in a quiet moment. It is called by another goroutine and must not block or call the
	// Renderer. May be nil.
	OnChange func()
}

// Pods says which interfaces are those of pods. The functions are called with the Renderer locked:
// they must not block and must not call it. Whoever implements one calls InterfacesChanged when
// its answers change.
type Pods struct {
	// Bindings knows interfaces of pods that have no tag. May be nil.
	Bindings PodBindings

	// Elsewhere reports whether a pod needs no interface, because it is on a host stack where
	// another renderer enforces: nobody waits for one then. Every audit asks it again. Nil is no
	// pod.
	Elsewhere func(pod api.PodID) bool

	// Refuses returns why the rules of a pod are not for an interface that sluice-cni made and that
	// has the pod's tag, empty if they are; the interface is closed then. A *Lives has one. Nil
	// refuses none.
	Refuses func(pod api.PodID, m vpp.Made) string

	// BlockUnknown closes interfaces that are a pod's, by tag or by Plumbing, as long
	// as the pod is not known here: a pod that is created, or created again, sends
	// and gets nothing before its policy is enforced. Otherwise they are open.
	BlockUnknown bool
}

// Flows says what the vswitch does with flows that are open. All of it holds for the ACLs of
// others, too.
type Flows struct {
	// Established says what becomes of open flows that policy no longer permits.
	Established Established

	// Grace is for how long after its start the vswitch lets pods go on with flows
	// that they had opened before, when Established is Revoke; 0 is not at all. In that
	// time, and for the flows of that time, what a pod sends opens the way back.
	Grace time.Duration

	// UDPIdle is when the vswitch forgets a flow of UDP, or of another protocol that
	// is not TCP, of which it sees no packets; in whole seconds, rounded up. 0 leaves
	// its setting alone, which is 10 minutes in VPP.
	UDPIdle time.Duration

	// SessionTable is how many sessions the vswitch may have; 0 leaves its setting alone, which is
	// 500 000 in VPP. VPP makes its table with the first ACL that an interface gets, and takes it
	// from its main heap: a number for which there is no room, or that is larger than the table
	// that VPP has, is logged and left.
	SessionTable uint32
}

// Pacing says when a Commit does what need not be done at once.
type Pacing struct {
	// CompactAfter is how long there must be no Commit before room is made for what joins:
	// then OnChange is called, and a Commit without changes moves the youngest
	// entries of large tables to older ACLs. 0 is 10 seconds, less than 0 never; then
	// room is made when there is none left.
	CompactAfter time.Duration

	// Audit is how often what interfaces have, and a part of the ACLs, is read and compared with
	// what was installed: then OnChange is called, and a Commit does it, and repairs what differs.
	// 0 is 10 seconds, less than 0 never. Every ACL is read in each sixth audit.
	Audit time.Duration

	// PauseBudget is the share of time that changes may pause the vswitch's workers, from 0 to 1:
	// after a Commit whose changing calls took T, members that join sets wait T/PauseBudget - T,
	// and no longer than 2 seconds, if rules only permit them more. Then OnChange is called, and a
	// Commit carries out all that waits. Everything else goes at once. 0 and 1: nothing waits.
	PauseBudget float64
}

// Stats says where the counters of the vswitch are read.
type Stats struct {
	// Socket is the path of the socket of VPP's statistics segment, from which counters
	// and the use of VPP's heap are read. It has no effect with Counters.
	Socket string

	// Counters returns how often each entry of an ACL has decided, false for an ACL
	// that there is not. Nil when nobody counts. It must not call the Renderer.
	Counters func(aclIndex uint32) (packets []uint64, ok bool)
}

// check returns the options with the defaults of what is not set.
func (o Options) check() (Options, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Pacing.CompactAfter == 0 {
		o.Pacing.CompactAfter = defaultCompactAfter
	}
	if o.Pacing.Audit == 0 {
		o.Pacing.Audit = defaultAudit
	}
	if o.Orientation == Split && o.Flows.Established != Keep {
		return o, errSplit
	}
	if b := o.Pacing.PauseBudget; !(b >= 0 && b <= 1) { // nor not a number
		return o, errPauseBudget
	}
	var err error
	o.Infra, err = o.Infra.Check()
	return o, err
}
