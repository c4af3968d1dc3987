package session

import (
	"errors"
	"log/slog"
	"slices"
	"time"

	"go.fd.io/govpp/adapter"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// Errors of Commit. Everything else was installed.
var (
	// ErrSharedNamespace is returned when two pods are said to have one application
	// namespace. Its applications may connect to nobody. Like ErrTooLarge it is a
	// renderer.Refusal.
	ErrSharedNamespace = renderer.Refusal("an application namespace is claimed twice")
	// ErrForeignRule is returned when somebody else's session rule is where one of ours
	// should be. It stays.
	ErrForeignRule = errors.New("a session rule of somebody else is in the way")
	// ErrTooLarge is returned when a pod would need more rules than Options.MaxRules. It
	// keeps those that it has; who has none is closed.
	ErrTooLarge = renderer.Refusal("too many session rules")
)

const (
	// defaultAudit is how often rules are compared.
	defaultAudit = 10 * time.Second
	// DefaultMaxRules is how many rules a section may have, unless Options say otherwise. VPP
	// compares a connection attempt with one after the other.
	DefaultMaxRules = 16384
)

// Ports says in which byte order the vswitch keeps the ports of session rules.
type Ports uint8

// The orders. VPP compares ports in the order of the network with those of rules in the order
// of the machine, as of 25.10.
const (
	PortsByVersion Ports = iota // as the vswitch of the version that there is does
	PortsOfMachine
	PortsOfNetwork
)

// Options of a Renderer.
type Options struct {
	Log *slog.Logger // nil discards

	// Adapter is the vswitch in this process; the Renderer connects and
	// disconnects it. When it is nil, Socket is the path of VPP's API socket.
	Adapter adapter.VppAPI
	Socket  string

	// Namespaces returns the index of the application namespace of a pod, false as long as
	// it has none. It is asked about every pod by every Commit that does anything, with the
	// Renderer locked: it must not block and must not call it. Nil has VPP asked for the
	// namespaces with the pod's names.
	Namespaces func(pod api.PodID) (index uint32, ok bool)

	// Names returns the names of the application namespaces of a pod. It is asked as
	// Namespaces is, when that is nil. A pod for which it returns none, and every pod when it
	// is nil, has the namespace with the name NamespaceID.
	Names func(pod api.PodID) []string

	// Keep lets connections live that are open when policy no longer permits them. Else their
	// applications are told to close them.
	Keep bool

	Infra    renderer.Infra // what passes whatever policy says; of it, Addresses
	MaxPorts int            // of a rule; 0 is DefaultMaxPorts
	MaxRules int            // of a pod, per transport and family; 0 is DefaultMaxRules
	Ports    Ports
	Timeout  time.Duration // of one call to the vswitch, or of one round of pipelined ones; 0 is vpp.DefaultTimeout

	// Audit is how often the session rules that there are are compared with what was installed:
	// then OnChange is called, and a Commit does it, and repairs what differs. 0 is 10 seconds,
	// less than 0 never.
	Audit time.Duration

	// OnChange is called when a Commit would have something to do although nothing was
	// rendered: after a (re)connection, and when NamespacesChanged was called. It is called by
	// another goroutine and must not block or call the Renderer. May be nil.
	OnChange func()
}

// namespacesOf returns the application namespaces of a pod, sorted; some are there by name.
func (o *Options) namespacesOf(pod api.PodID, present map[string]uint32) (out []uint32) {
	if o.Namespaces != nil {
		if index, ok := o.Namespaces(pod); ok {
			out = append(out, index)
		}
		return out
	}
	var names []string
	if o.Names != nil {
		names = o.Names(pod)
	}
	if len(names) == 0 {
		names = []string{NamespaceID(pod)}
	}
	for _, name := range names {
		if index, ok := present[name]; ok {
			out = append(out, index)
		}
	}
	slices.Sort(out)
	return out
}
