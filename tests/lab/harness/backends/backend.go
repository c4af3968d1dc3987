package backends

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/renderer/renderertest"
	"github.com/sluice-net/sluice/renderer/xdp/xdptest"
)

// All lists every renderer, over what it enforces by. The first one runs everywhere.
var All = []Kind{
	{Name: "acl", New: newACL},
	{Name: "xdp", New: newXDP},
	{Name: "xdp-kernel", New: newXDPKernel, Missing: xdptest.Missing, Slow: true},
	{Name: "session", New: newSession},
	{Name: "secgroup", New: newSecgroup, Alone: true},
	{Name: "vpp", On: onVPPs, Slow: true, Alone: true},
	{Name: "vpp-plugin", On: onPluginVPPs, Slow: true, Alone: true},
}

// Kind is how to make a backend of one kind.
type Kind struct {
	Name string
	// New returns an empty backend with its renderer. Whenever something in the backend
	// changes that the renderer must look at, prompt is called.
	New func(prompt func()) (Backend, error)
	// On returns the kind for one test, with which the processes end that New needs, or skips the
	// test. With nil, New needs none.
	On func(t *testing.T) Kind
	// Missing returns the reason why this machine cannot run the kind; nil: every machine can.
	Missing func() error
	// Slow backends need much more time for a verdict than others. They are asked about fewer
	// flows, and about fewer states that are drawn at random or sent in another order.
	Slow bool
	// Alone has the kind tested only where SLUICE_STACK names it: it needs so much time that other
	// kinds would be tested less.
	Alone bool
}

// Need skips a test where this machine can have no backend of the kind.
func (k Kind) Need(t *testing.T) {
	t.Helper()
	if k.Missing == nil {
		return
	}
	if err := k.Missing(); err != nil {
		t.Skip(err)
	}
}

// Backend is one renderer and the dataplane below it on one node: a subject of package
// renderertest that can be looked into, restarted and asked who is there. Every pod that is
// rendered is attached to it: packets from its addresses come from it, and those to its
// addresses are delivered to it, once a transaction has been committed. An address of no pod
// is behind the uplink. Methods are called by one goroutine at a time, not during a commit.
type Backend interface {
	renderertest.Subject
	renderertest.Inspector
	renderertest.Restarter
	// Has reports whether a pod of this node has the address.
	Has(a netip.Addr) bool
	// Trace describes what happens to the first packet of a flow.
	Trace(f api.Flow) string
	Close() error
}

// Stateful is a Backend that keeps sessions. Packets sent here leave theirs behind, and
// meet those of earlier ones.
type Stateful interface {
	// First sends the first packet of a flow.
	First(f api.Flow) bool
	// Reply sends the answer to the first packet of a flow.
	Reply(f api.Flow) bool
}

// Watched is a Backend that can be looked at in the middle of a commit.
type Watched interface {
	// Watch has look called after every change of the dataplane, while the renderer waits for its
	// answer. It may ask about verdicts.
	Watch(look func())
}

// Sender is a Backend that takes any packet, which leaves its sessions behind.
type Sender interface {
	// Passes sends a packet and reports whether it arrives.
	Passes(p vswitch.Packet) bool
}

// Strict is a Sender that drops some packets that others let pass, as Narrow is of flows.
type Strict interface {
	// Drops says that the packet may be dropped although it should arrive.
	Drops(p vswitch.Packet) bool
}

// Optional interfaces of backends.
type (
	// Batched is a Backend that wants to know what it will be asked.
	Batched = renderertest.Batched
	// Partial is a Backend that cannot be asked about all flows.
	Partial = renderertest.Partial
	// Narrow is a Backend that denies some flows that the rules permit.
	Narrow = renderertest.Narrow
)

// only is what names the kind that is tested alone.
const only = "SLUICE_STACK"

// Chosen lists what is to be tested: every renderer, or the kind alone that SLUICE_STACK names,
// which is then asked as much as any, unless it needs processes. A name that no kind has ends the
// test, which would be about others.
func Chosen(t testing.TB) []Kind {
	t.Helper()
	kinds, err := chosen(os.Getenv(only))
	if err != nil {
		t.Fatal(err)
	}
	return kinds
}

// Usual lists the kinds that are tested where SLUICE_STACK names none.
func Usual() []Kind {
	return slices.DeleteFunc(slices.Clone(All), func(k Kind) bool { return k.Alone })
}

func chosen(name string) ([]Kind, error) {
	if name == "" {
		return Usual(), nil
	}
	kind, err := Named(All, name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", only, err)
	}
	kind.Slow = kind.On != nil
	return []Kind{kind}, nil
}

// Named returns the one of some kinds that has a name.
func Named(kinds []Kind, name string) (Kind, error) {
	var known []string
	for _, k := range kinds {
		if k.Name == name {
			return k, nil
		}
		known = append(known, k.Name)
	}
	return Kind{}, fmt.Errorf("%q is no kind of dataplane: want %s", name, strings.Join(known, ", "))
}

// Each runs a test once for every kind of backend that is to be tested.
func Each(t *testing.T, test func(t *testing.T, kind Kind)) {
	t.Helper()
	for _, kind := range Chosen(t) {
		t.Run(kind.Name, func(t *testing.T) {
			kind.Need(t)
			if kind.On != nil {
				kind = kind.On(t)
			}
			test(t, kind)
		})
	}
}
