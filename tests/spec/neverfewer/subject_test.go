package neverfewer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl"
	"github.com/sluice-net/sluice/renderer/plugin"
	"github.com/sluice-net/sluice/renderer/renderertest"
	"github.com/sluice-net/sluice/renderer/secgroup"
	"github.com/sluice-net/sluice/renderer/session"
	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
	"github.com/sluice-net/sluice/renderer/xdp/xdptest"
	"github.com/sluice-net/sluice/tests/lab/harness/backends"
	"github.com/sluice-net/sluice/tests/lab/secgrouptest"
)

// subject is a renderer over its smallest real dataplane.
type subject struct {
	renderer func() renderer.Renderer // the one of now
	prompt   atomic.Pointer[func()]   // what the renderer calls to get another Apply; nil: nothing
	restart  func() error             // replaces it by one that knows nothing; nil: it is the dataplane itself
	fail     func(n int)              // makes the n-th next call to the dataplane fail; 0: none

	// side asks the dataplane about the first packet of a flow at one end, which is a pod. It is nil
	// where tables are about both ends; then pair asks about the whole flow.
	side func(pod api.PodID, end int, f api.Flow) bool
	pair func(f api.Flow, pods podsAt) bool

	sees    func(f api.Flow) bool // nil: every flow
	narrows func(f api.Flow) bool // may be dropped although it is permitted; nil: none
	close   func() error
}

// podsAt returns the pods that have an address.
type podsAt func(a netip.Addr) []api.PodID

// called is called after a call that changes the dataplane, always if packets meet other rules at once.
type called func(call string, always bool)

// kind makes subjects. Every change of its dataplane is followed by a look.
type kind struct {
	name string
	make func(called called) (*subject, error)
	// slow kinds need seconds for a look at thousands of rules, and are played without these unless
	// tests are whole.
	slow bool
	// between replaces what the engine knows as the renderer; nil: it is the law.
	between func(renderer.Renderer) renderer.Renderer
}

var kinds = []kind{
	{name: "recorder", make: newRecorder},
	{name: "acl", make: newACL},
	{name: "session", make: newSession, slow: true},
	{name: "xdp", make: newHeap},
	{name: "plugin", make: newMemory},
	{name: "secgroup", make: newSecgroup, slow: true},
}

// kindOf returns the kind of a name.
func kindOf(name string) kind {
	return kinds[slices.IndexFunc(kinds, func(k kind) bool { return k.name == name })]
}

// newRecorder is for the engine alone.
func newRecorder(look called) (*subject, error) {
	r := renderertest.NewRecorder("recorder", nil)
	r.SetHook(func(context.Context) error {
		look("nothing yet", true)
		return nil
	})
	return &subject{
		renderer: func() renderer.Renderer { return r },
		fail: func(n int) {
			if n == 1 || n == 2 {
				r.FailNext([]renderertest.Failure{renderertest.FailBefore, renderertest.FailAfter}[n-1])
			}
		},
		pair: func(f api.Flow, _ podsAt) bool { return r.Verdict(f) == api.Permit },
		side: func(_ api.PodID, end int, f api.Flow) bool {
			ends := r.Ends(f)
			return [bothEnds]api.Action{ends.Src, ends.Dst}[end] == api.Permit
		},
		close: func() error { return nil },
	}, nil
}

func newACL(look called) (*subject, error) {
	s := &subject{}
	b, err := backends.NewACL(acl.Options{OnChange: func() {
		if prompt := s.prompt.Load(); prompt != nil {
			(*prompt)()
		}
	}})
	if err != nil {
		return nil, err
	}
	b.(backends.Watched).Watch(func() { look("a change of ACLs", true) })
	s.renderer, s.restart, s.fail, s.close = b.Renderer, b.Restart, b.FailNext, b.Close
	s.pair = func(f api.Flow, _ podsAt) bool { return b.Verdict(f) == api.Permit }
	return s, nil
}

func newSession(look called) (*subject, error) {
	s, err := backends.NewSession(backends.SessionOptions{Quirks: true, Rules: session.Options{Timeout: time.Minute}})
	if err != nil {
		return nil, err
	}
	s.Watch(func() { look("a change of session rules", false) })
	return &subject{
		renderer: s.Renderer, restart: s.Restart, fail: s.FailNext, close: s.Close, sees: s.Sees, narrows: s.Narrows,
		// The applications of a pod that connect to another pod of the node meet the rules of both.
		pair: func(f api.Flow, podsAt podsAt) bool {
			passes := true
			for _, pod := range podsAt(f.Src) {
				passes = passes && s.Switch.Connect(s.Namespaces[pod], f).Action == api.Permit
			}
			for _, pod := range podsAt(f.Dst) {
				passes = passes && s.Switch.Accept(s.Namespaces[pod], f).Action == api.Permit
			}
			return passes
		},
	}, nil
}

func newHeap(look called) (*subject, error) {
	return newImage(xdp.NewHeap(), xdp.NewHeap().Close, look)
}

func newMemory(look called) (*subject, error) {
	dir, err := os.MkdirTemp("", "neverfewer")
	if err != nil {
		return nil, err
	}
	m, err := plugin.Open(plugin.MemoryOptions{Directory: dir, Lines: 1 << 18, Slots: 1 << 10, Flows: 64})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return newImage(memory{m, map[uint32]bool{}}, func() error { return errors.Join(m.Close(), os.RemoveAll(dir)) }, look)
}

// newImage is the renderer of policy images over some plane.
func newImage(plane xdp.Dataplane, closes func() error, look called) (*subject, error) {
	ids := map[api.PodID]uint32{}
	interfaceOf := func(pod api.PodID) uint32 {
		if ids[pod] == 0 {
			ids[pod] = uint32(len(ids) + 1)
		}
		return ids[pod]
	}
	w := &watched{Tap: &xdptest.Tap{Dataplane: plane}, look: look}
	o := xdp.Options{Dataplane: w, Interfaces: func(pod api.PodID, _ []netip.Addr) []uint32 { return []uint32{interfaceOf(pod)} }}
	r, err := xdp.New(o)
	if err != nil {
		return nil, errors.Join(err, closes())
	}
	return &subject{
		renderer: func() renderer.Renderer { return r },
		restart: func() (err error) {
			if err = r.Close(); err == nil {
				r, err = xdp.New(o)
			}
			return err
		},
		fail: w.FailNext,
		side: func(pod api.PodID, end int, f api.Flow) bool {
			permits, err := plane.Permits(interfaceOf(pod), [bothEnds]compile.Direction{compile.FromPod, compile.ToPod}[end], f)
			if err != nil {
				panic(fmt.Sprintf("the plane does not answer: %v", err)) // no look makes sense then
			}
			return permits
		},
		close: func() error { return errors.Join(r.Close(), closes()) },
	}, nil
}

// watched looks after every step.
type watched struct {
	*xdptest.Tap
	look called
}

func (w *watched) after(call string, err error) error {
	w.look(call, false)
	return err
}

func (w *watched) switched(call string, err error) error {
	w.look(call, true)
	return err
}

// SetStateDigest implements xdp.Dataplane.
func (w *watched) SetStateDigest(d xdp.StateDigest) error {
	return w.after("SetStateDigest", w.Tap.SetStateDigest(d))
}

// Prepare implements xdp.Dataplane.
func (w *watched) Prepare(lines, slots int) error {
	return w.after("Prepare", w.Tap.Prepare(lines, slots))
}

// Write implements xdp.Dataplane.
func (w *watched) Write(line uint32, content []compile.Line) error {
	return w.after("Write", w.Tap.Write(line, content))
}

// Store implements xdp.Dataplane.
func (w *watched) Store(word, value uint32) error {
	return w.after("Store", w.Tap.Store(word, value))
}

// Flip implements xdp.Dataplane.
func (w *watched) Flip(id, record uint32) error { return w.switched("Flip", w.Tap.Flip(id, record)) }

// Switch implements xdp.Dataplane.
func (w *watched) Switch() ([]uint64, error) {
	left, err := w.Tap.Switch()
	return left, w.switched("Switch", err)
}

// Attach implements xdp.Dataplane.
func (w *watched) Attach(e compile.Endpoint) error { return w.switched("Attach", w.Tap.Attach(e)) }

// Detach implements xdp.Dataplane.
func (w *watched) Detach(id uint32) error { return w.switched("Detach", w.Tap.Detach(id)) }

// memory is the memory that VPP's plugin reads, read here by the algorithm of its classifier.
type memory struct {
	*plugin.Memory
	attached map[uint32]bool
}

// Name implements xdp.Dataplane.
func (m memory) Name(compile.Endpoint) error { return nil }

// Attach implements xdp.Dataplane.
func (m memory) Attach(e compile.Endpoint) error { m.attached[e.ID] = true; return nil }

// Detach implements xdp.Dataplane.
func (m memory) Detach(id uint32) error { delete(m.attached, id); return nil }

// Attached implements xdp.Dataplane.
func (m memory) Attached() ([]uint32, error) { return slices.Sorted(maps.Keys(m.attached)), nil }

// Permits implements xdp.Dataplane.
func (m memory) Permits(id uint32, dir compile.Direction, f api.Flow) (bool, error) {
	record := m.Record(id)
	if record == 0 || !m.attached[id] {
		return true, nil
	}
	return compile.Reader{Word: m.Word}.Verdict(record, dir, f)&compile.Allow != 0, nil
}

func newSecgroup(look called) (*subject, error) {
	s, err := secgrouptest.NewStack(secgroup.Options{DefaultGroups: []string{secgrouptest.Default}, MaxRules: 1 << 14})
	if err != nil {
		return nil, err
	}
	s.Options.API = watchedNeutron{s.Neutron, look}
	return &subject{
		renderer: s.Renderer, restart: s.Restart, fail: s.FailNext, close: s.Close,
		sees: func(f api.Flow) bool {
			return f.Protocol.HasPorts() || f.Protocol == api.ICMP || f.Protocol == api.ICMPv6
		},
		side: func(_ api.PodID, end int, f api.Flow) bool {
			return s.PassesEnd(f, [bothEnds]api.Direction{api.Egress, api.Ingress}[end])
		},
	}, s.Restart()
}

// watchedNeutron looks after every change.
type watchedNeutron struct {
	*secgrouptest.Neutron
	look called
}

// Apply implements secgroup.API.
func (n watchedNeutron) Apply(ctx context.Context, op secgroup.Op) (secgroup.Result, error) {
	res, err := n.Neutron.Apply(ctx, op)
	n.look(fmt.Sprintf("%+v", op), false)
	return res, err
}
