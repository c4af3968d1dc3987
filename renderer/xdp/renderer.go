package xdp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
	"github.com/sluice-net/sluice/renderer/xdp/internal/attach"
	"github.com/sluice-net/sluice/renderer/xdp/internal/events"
)

// Renderer enforces rules in a Plane. It implements renderer.Renderer, and every ability that
// readers find by type assertion; these wait for no Commit. Transactions are committed one after
// the other.
type Renderer struct {
	options Options
	log     *slog.Logger
	view    atomic.Pointer[view]
	ledger  *ledger
	told    told

	mu       sync.Mutex // held for a Commit
	acked    installed
	image    *compile.Image
	ends     map[uint32]compile.Endpoint // that the image has
	owner    map[uint32]api.PodID
	attached map[uint32]bool      // false: it was, or was to be, and there may be something to detach
	lost     map[uint32]bool      // was attached, and is not any more
	ending   renderer.Unplugged   // pods whose interfaces went
	gone     []error              // interfaces that were gone when they were to be attached, by this Commit
	learning map[uint32]time.Time // until when
	named    map[uint32][]netip.Addr
	timer    *time.Timer

	started bool // the plane has the memory of the image
	again   bool // the last plan was not carried out, or none was made yet
	adopted bool // the plane enforces what is told, in a memory that another process wrote
	pending []renderer.Pending
	refused []renderer.Unenforced

	closed       []compile.Refusal // what the image refused
	reported     []closedList      // of which the rules are in over
	over         []renderer.Unenforced
	origins      map[*renderer.RuleList][]api.Origin // of lists in reported
	reconsidered time.Time                           // when it looked at that again

	graces graces
	ended  bool

	audited time.Time          // when the kernel was read back last
	drift   map[string]uint64  // by kind, what somebody else changed
	foreign []renderer.Foreign // programs of others
}

var (
	_ renderer.Renderer  = (*Renderer)(nil)
	_ renderer.Explainer = (*Renderer)(nil)
	_ renderer.Reporter  = (*Renderer)(nil)
	_ renderer.Inspector = (*Renderer)(nil)
	_ renderer.Counter   = (*Renderer)(nil)
)

// New returns a renderer. Nothing is changed before the first Commit.
func New(o Options) (*Renderer, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.MaxLines == 0 {
		o.MaxLines = DefaultMaxLines
	}
	switch {
	case o.Plane == nil:
		return nil, errors.New("xdp: a plane is needed to enforce in")
	case o.Interfaces == nil:
		return nil, errors.New("xdp: a function is needed that says which interfaces a pod has")
	case o.MaxLines > DefaultMaxLines:
		return nil, fmt.Errorf("xdp: a memory of up to %d lines: want %d at most", o.MaxLines, DefaultMaxLines)
	}
	infra, err := o.Infra.Check()
	if err != nil {
		return nil, fmt.Errorf("xdp: %w", err)
	}
	o.Infra = infra
	r := &Renderer{
		options: o, log: o.Log,
		told:     told{pods: map[api.PodID]renderer.PodConfig{}, sets: map[api.SetID]map[netip.Prefix]struct{}{}, before: map[api.SetID]past{}},
		learning: map[uint32]time.Time{}, attached: map[uint32]bool{}, lost: map[uint32]bool{}, named: map[uint32][]netip.Addr{}, owner: map[uint32]api.PodID{}, ledger: newLedger(),
		audited: time.Now(), drift: attach.Drift{},
	}
	r.forget()
	_ = r.publish(nil)
	return r, nil
}

// Name returns "xdp".
func (r *Renderer) Name() string { return "xdp" }

// Close ends what the renderer started. What it installed stays in force.
func (r *Renderer) Close() error {
	r.mu.Lock()
	r.ended = true
	if r.timer != nil {
		r.timer.Stop()
	}
	r.mu.Unlock()
	r.graces.wait()
	return nil
}

// forget begins with an image in which nothing is.
func (r *Renderer) forget() {
	r.graces.wait()
	r.graces.take()
	r.image = compile.NewImage(compile.Options{Infra: r.options.Infra.Addresses, Members: r.told.sets, Budget: r.options.budget()})
	r.ends = map[uint32]compile.Endpoint{}
	r.again = true
}

// Commit installs the difference.
func (t *txn) Commit(ctx context.Context) error {
	r := t.r
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told.apply(t, r.image.Update)
	return r.publish(r.commit(ctx))
}

// commit brings the plane from what it enforces to what is told.
func (r *Renderer) commit(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r.release()
	r.gone = nil
	r.reconsider()
	problems, since := r.arrange(), events.SinceBoot()
	if err := r.audit(); err != nil {
		problems = append(problems, err)
	}
	mark := r.mark()
	if r.again && !r.adopted && r.options.Plane.Mark() == mark {
		if _, err := r.adopt(); err != nil {
			return err
		}
	}
	lost, err := r.missing()
	if err != nil {
		return err
	}
	if lost || !r.adopted || r.options.Plane.Mark() != mark {
		if err := r.install(mark); err != nil {
			r.again = true
			return errors.Join(append(problems, err)...)
		}
		r.again, r.adopted = false, false
	}
	problems = append(problems, r.gone...)
	enforced := r.enforced()
	r.refused = r.overBudget() // none also when what is told is again what was in force all the time
	r.note(since)
	r.plugged()
	r.told.acknowledge(func() {
		r.acked = installed{enforced, r.owner}
		_ = r.publish(errors.Join(problems...)) // so that readers see these members with these lists
	})
	if r.options.Enforced != nil {
		pods := make(map[api.PodID]bool, len(r.told.pods))
		for pod := range r.told.pods {
			pods[pod] = true
		}
		r.options.Enforced(pods, r.enforces())
	}
	return errors.Join(problems...)
}

// plugged notes at which pods' interfaces policy is in force.
func (r *Renderer) plugged() {
	pods := map[api.PodID]bool{}
	for _, pod := range r.enforces() {
		pods[pod] = true
	}
	r.ending.Plugged(pods, func(pod api.PodID) bool { _, known := r.told.pods[pod]; return known })
}

// enforces returns the endpoints that are attached, and whose they are.
func (r *Renderer) enforces() map[uint32]api.PodID {
	out := maps.Clone(r.owner)
	maps.DeleteFunc(out, func(id uint32, _ api.PodID) bool { return !r.attached[id] })
	return out
}

// adopt takes over a plane that enforces what is told, if the same endpoints are attached.
func (r *Renderer) adopt() (adopted bool, err error) {
	ids, err := r.options.Plane.Attached()
	if err != nil {
		return false, fmt.Errorf("what is attached: %w", err)
	}
	if !slices.Equal(ids, slices.Sorted(maps.Keys(r.ends))) {
		return false, nil
	}
	for _, id := range ids {
		r.attached[id] = true
	}
	r.image.Plan(false) // so that it can be read
	r.adopted = true
	return true, nil
}

// mark identifies everything that was told, as far as it is enforced.
func (r *Renderer) mark() Mark {
	m := r.told.mark
	for id, e := range r.ends {
		var b bytes.Buffer
		fmt.Fprintf(&b, "e%d %v %s %t %s %t %d", id, e.IPs, e.ToPod.Digest(), e.ToPod == nil, e.FromPod.Digest(), e.FromPod == nil, e.Flags&compile.FlagKeep)
		m.toggle(b.Bytes())
	}
	m.toggle(fmt.Append(nil, "i", r.options.Infra))
	return m
}

// arrange tells the image which endpoints there are. It returns what cannot be told.
func (r *Renderer) arrange() (problems []error) {
	want, owner := r.claims(&problems)
	for id := range r.ends {
		if _, ok := want[id]; !ok {
			r.image.Remove(id)
			delete(r.ends, id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(want)) {
		e := want[id]
		if old, ok := r.ends[id]; ok && same(old, e) {
			r.ends[id] = e // origins may be others
			continue
		}
		if err := r.image.Set(e); err != nil {
			problems = append(problems, fmt.Errorf("pod %s: %w", owner[id], err))
			e.IPs, e.ToPod, e.FromPod = nil, compile.Closed, compile.Closed
			if err := r.image.Set(e); err != nil {
				problems = append(problems, err)
				continue
			}
		}
		r.ends[id] = e
	}
	r.owner = owner
	return problems
}

func same(a, b compile.Endpoint) bool {
	return slices.Equal(a.IPs, b.IPs) && sameList(a.ToPod, b.ToPod) && sameList(a.FromPod, b.FromPod) && a.Flags == b.Flags && a.Owner == b.Owner
}

func sameList(a, b *renderer.RuleList) bool {
	return a == b || a != nil && b != nil && a.Digest() == b.Digest()
}

// claims returns the endpoints that there must be.
func (r *Renderer) claims(problems *[]error) (map[uint32]compile.Endpoint, map[uint32]api.PodID) {
	want, owner := map[uint32]compile.Endpoint{}, map[uint32]api.PodID{}
	r.pending = nil
	for _, pod := range slices.SortedFunc(maps.Keys(r.told.pods), api.PodID.Compare) {
		cfg := r.told.pods[pod]
		ids := r.options.Interfaces(pod, cfg.IPs)
		if len(ids) == 0 && (cfg.Ingress != nil || cfg.Egress != nil) {
			r.pending = append(r.pending, r.unplugged(pod))
		}
		for _, id := range ids {
			e := compile.Endpoint{ID: id, IPs: cfg.IPs, FromPod: cfg.Ingress, ToPod: cfg.Egress, Flags: r.flags(id), Owner: pod.Namespace}
			if _, claimed := want[id]; claimed {
				*problems = append(*problems, fmt.Errorf("interface %d: %w, by pods %s and %s", id, ErrSharedInterface, owner[id], pod))
				e.IPs, e.FromPod, e.ToPod = nil, compile.Closed, compile.Closed
			}
			want[id], owner[id] = e, pod
		}
	}
	if err := renderer.Missing(r.pending); err != nil {
		*problems = append(*problems, err)
	}
	return want, owner
}

// unplugged returns what a pod without an interface waits for.
func (r *Renderer) unplugged(pod api.PodID) renderer.Pending {
	if r.ending.Ends(pod, time.Now()) {
		return renderer.Pending{Pod: pod, Reason: "its interface is gone", Ends: true}
	}
	return renderer.Pending{Pod: pod, Reason: "no interface is known"}
}

// flags returns the flags of an endpoint, and sees to it that learning ends.
func (r *Renderer) flags(id uint32) (flags uint32) {
	if r.options.Keep {
		flags |= compile.FlagKeep
	}
	if r.options.Learn <= 0 {
		return flags
	}
	until, known := r.learning[id]
	if !known {
		until = time.Now().Add(r.options.Learn)
		r.learning[id] = until
		r.wakeAfter(r.options.Learn)
	}
	if time.Now().Before(until) {
		flags |= compile.FlagLearn
	}
	return flags
}

// wakeAfter has the renderer looked at.
func (r *Renderer) wakeAfter(d time.Duration) {
	if r.timer != nil {
		r.timer.Stop()
	}
	r.timer = time.AfterFunc(d, func() {
		if r.options.OnChange != nil {
			r.options.OnChange()
		}
	})
}
