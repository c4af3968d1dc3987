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

// Errors of Apply. Everything else is installed.
var (
	// ErrSharedNamespace is returned when two pods claim one application namespace. Its
	// applications may then not connect to any address. Like ErrTooLarge it is a renderer.Refusal.
	ErrSharedNamespace = renderer.Refusal("two pods claim one application namespace")
	// ErrForeignRule is returned when a session rule of another owner is in the place of one of
	// ours. The foreign rule stays.
	ErrForeignRule = errors.New("a session rule of another owner is in the way")
	// ErrTooLarge is returned when a pod would need more rules than Options.MaxRules. The pod keeps
	// its rules; a pod without rules is blocked.
	ErrTooLarge = renderer.Refusal("too many session rules")
)

const (
	// defaultAudit is the default interval between audits.
	defaultAudit = 10 * time.Second
	// DefaultMaxRules is the default of Options.MaxRules. VPP compares a connection attempt with
	// the rules one by one.
	DefaultMaxRules = 16384
)

// namespaceRules is how many session rules the lists of a namespace's pods may take, and nodeRules
// those of all pods that are on the host stack of VPP.
const (
	namespaceRules = 1 << 17
	nodeRules      = 2 * namespaceRules
	listRules      = namespaceRules / 2
)

// Ports is the byte order in which the vswitch keeps the ports of session rules.
type Ports uint8

// The orders. VPP 25.10 compares ports in network byte order with those of rules in host byte
// order.
const (
	PortsByVersion Ports = iota // according to the version of the vswitch
	PortsOfMachine
	PortsOfNetwork
)

// Options configure a Renderer.
type Options struct {
	Log *slog.Logger // nil discards

	// Adapter is the vswitch in this process. The Renderer connects and disconnects it. If it is
	// nil, Socket is the path of VPP's API socket.
	Adapter adapter.VppAPI
	Socket  string

	// Namespaces returns the index of the application namespace of a pod, or false while it has
	// none. Every Apply with work to do calls it for every pod while the Renderer holds its lock:
	// it must neither block nor call the Renderer. If it is nil, VPP is queried for the namespaces
	// with the names of the pod.
	Namespaces func(pod api.PodID) (index uint32, ok bool)

	// Names returns the names of the application namespaces of a pod. It is used when Namespaces is
	// nil, under the same conditions. If it is nil or returns none, the pod has the namespace with
	// the name NamespaceID.
	Names func(pod api.PodID) []string

	// Keep leaves connections open that policy no longer permits. Otherwise their applications are
	// asked to close them.
	Keep bool

	Infra    renderer.Infra // traffic exempt from policy; only Addresses are used
	MaxPorts int            // of a rule; 0 is DefaultMaxPorts
	MaxRules int            // of a pod, per transport and family; 0 is DefaultMaxRules
	Ports    Ports
	Timeout  time.Duration // of one call to the vswitch, or of one round of pipelined calls; 0 is vpp.DefaultTimeout

	// Audit is the interval between audits: OnChange is called, and an Apply compares the session
	// rules with what was installed, and repairs differences. 0 means 10 seconds; a negative value
	// disables audits.
	Audit time.Duration

	// OnChange is called when an Apply would have work to do although nothing was rendered: after a
	// (re)connection, and after NamespacesChanged. It runs in another goroutine, and must neither
	// block nor call the Renderer. It may be nil.
	OnChange func()
}

// namespacesOf returns the sorted application namespaces of a pod. present are the existing ones by
// name.
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
