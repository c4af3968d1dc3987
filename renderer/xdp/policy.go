package xdp

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
	"github.com/sluice-net/sluice/renderer/xdp/internal/events"
	"github.com/sluice-net/sluice/renderer/xdp/internal/loader"
)

// policyDataplane is what a policy is written to and read from.
type policyDataplane interface {
	switcher
	writer
	reader
}

// policy is the image of what is desired, and how much of it the plane has.
type policy struct {
	plane    policyDataplane
	log      *slog.Logger
	maxLines int
	options  compile.Options

	image     *compile.Image
	ends      endpoints // that the image has
	state     policyState
	counters  *ruleCounters
	reclaimer reclaimer
}

func newPolicy(o Options, counters *ruleCounters, d *desired) *policy {
	p := &policy{
		plane: o.Dataplane, log: o.Log, maxLines: o.MaxLines, counters: counters, ends: newEndpoints(),
		options: compile.Options{Infra: o.Infra.Addresses, Members: d.sets, Budget: o.budget()},
	}
	p.begin()
	return p
}

// begin begins with an empty image.
func (p *policy) begin() {
	p.reclaimer.wait()
	p.reclaimer.take()
	p.image = compile.NewImage(p.options)
	p.ends.lists = map[uint32]compile.Endpoint{}
	p.on(policyRenewed)
}

func (p *policy) on(e policyEvent) { p.state = p.state.after(e) }

// arrange tells the image which endpoints there are. It returns what cannot be told.
func (p *policy) arrange(want endpoints) (problems []error) {
	for id := range p.ends.lists {
		if _, ok := want.lists[id]; !ok {
			p.image.Remove(id)
			delete(p.ends.lists, id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(want.lists)) {
		e := want.lists[id]
		if old, ok := p.ends.lists[id]; ok && same(old, e) {
			p.ends.lists[id] = e // origins may be others
			continue
		}
		if err := p.image.Set(e); err != nil {
			problems = append(problems, fmt.Errorf("pod %s: %w", want.owner[id], err))
			e.IPs, e.ToPod, e.FromPod = nil, compile.Closed, compile.Closed
			if err := p.image.Set(e); err != nil {
				problems = append(problems, err)
				continue
			}
		}
		p.ends.lists[id] = e
	}
	p.ends.owner = want.owner
	return problems
}

func same(a, b compile.Endpoint) bool {
	return slices.Equal(a.IPs, b.IPs) && sameList(a.ToPod, b.ToPod) && sameList(a.FromPod, b.FromPod) && a.Flags == b.Flags && a.Owner == b.Owner
}

func sameList(a, b *renderer.RuleList) bool {
	return a == b || a != nil && b != nil && a.Digest() == b.Digest()
}

// current reports whether no plan is left from before that has to be carried out.
func (p *policy) current() bool { return p.state == policyInstalled || p.state == policyAdopted }

// plan returns how to bring the plane to what is desired: by a new policy map where that is anew.
// The error says why no policy map is large enough.
func (p *policy) plan() (plan compile.Plan, anew bool, err error) {
	plan = p.image.Plan(p.state != policyInstalled)
	lines, slots := p.plane.Size()
	anew = !p.state.isOurs() || plan.Lines > lines || p.countable(plan) > slots
	if anew && p.fits(plan) != nil {
		plan = p.compact()
		err = p.fits(plan)
	}
	return plan, anew, err
}

// fits returns why a plan cannot be carried out.
func (p *policy) fits(plan compile.Plan) error {
	lines, _ := p.plane.Limits()
	return loader.CheckLines(plan.Lines, min(lines, p.maxLines))
}

// countable is how many counters a plan gets. Rules beyond what the plane can count are enforced
// like others.
func (p *policy) countable(plan compile.Plan) int {
	_, slots := p.plane.Limits()
	return min(plan.Slots, slots)
}

// compact begins with a new image, which is as small as can be.
func (p *policy) compact() compile.Plan {
	ends := p.ends.lists
	p.begin()
	for _, id := range slices.Sorted(maps.Keys(ends)) {
		if err := p.image.Set(ends[id]); err == nil {
			p.ends.lists[id] = ends[id]
		}
	}
	return p.image.Plan(true)
}

// adopt takes over the policy map that another process wrote.
func (p *policy) adopt() {
	p.image.Plan(false) // so that it can be read
	p.on(policyMatched)
}

// prepare writes everything to a new policy map.
func (p *policy) prepare(plan compile.Plan) error {
	p.on(policyRenewed)
	if n := p.countable(plan); n < plan.Slots {
		p.log.Warn("not all rules are counted: the kernel has no larger values", "counters", n, "wanted", plan.Slots)
	}
	if err := p.plane.Prepare(plan.Lines, p.countable(plan)); err != nil {
		return fmt.Errorf("make a memory of %d lines: %w", plan.Lines, err)
	}
	if err := p.image.Parts(compile.Span{Lines: uint32(plan.Lines)}, p.plane.Write); err != nil {
		return fmt.Errorf("write memory: %w", err)
	}
	for _, id := range slices.Sorted(maps.Keys(p.ends.lists)) {
		if err := p.plane.Flip(id, p.image.Record(id)); err != nil {
			return fmt.Errorf("endpoint %d: %w", id, err)
		}
	}
	return nil
}

// swap puts the prepared policy map in force.
func (p *policy) swap() error {
	since := events.SinceBoot()
	err := p.counters.leave(func() ([]uint64, error) {
		left, err := p.plane.Switch()
		if err == nil {
			p.on(policySwitched)
		}
		return left, err
	}, p.slot)
	if err != nil {
		return fmt.Errorf("put a new memory in force: %w", err)
	}
	p.note(since)
	return nil
}

// write writes what no packet reads yet.
func (p *policy) write(plan compile.Plan) error {
	for _, s := range plan.Fresh {
		if err := p.image.Parts(s, p.plane.Write); err != nil {
			return fmt.Errorf("write memory: %w", err)
		}
	}
	return p.store(plan.Stores)
}

func (p *policy) store(stores []compile.Store) error {
	for _, s := range stores {
		if err := p.plane.Store(s.Word, s.Value); err != nil {
			return fmt.Errorf("write memory: %w", err)
		}
	}
	return nil
}

// lead leads packets to what was written: of endpoints that are different, then of addresses, then
// of endpoints that are new.
func (p *policy) lead(plan compile.Plan) error {
	if err := p.flip(plan.Flips); err != nil {
		return err
	}
	if err := p.store(plan.Roots); err != nil {
		return err
	}
	return p.flip(plan.Joins)
}

func (p *policy) flip(flips []compile.Flip) error {
	for _, f := range flips {
		if err := p.plane.Flip(f.ID, f.Record); err != nil {
			return fmt.Errorf("endpoint %d: %w", f.ID, err)
		}
	}
	return nil
}

// done notes that the last plan was carried out. What nothing leads to any more is released when a
// grace period is over.
func (p *policy) done() {
	p.reclaimer.add(p.image.Done(), p.plane.Grace, p.log)
}

// release makes what nothing leads to any more available, if no packet is on its way that could
// have read it.
func (p *policy) release() {
	for _, x := range p.reclaimer.take() {
		if err := p.counters.release(x.Slots(), p.plane.Hits); err != nil {
			p.log.Warn("what rules decided that are no more is not known", "error", err)
		}
		p.image.Release(x)
	}
}

// note takes down whose the counters are from a time on.
func (p *policy) note(since time.Duration) {
	p.counters.note(slices.Sorted(maps.Keys(p.ends.lists)), p.slot, since)
}

// slot returns the list that is in force for a direction of an endpoint, and the counter of its
// first rule, which a policy map says that another process wrote.
func (p *policy) slot(id uint32, dir compile.Direction) (first uint32, list *renderer.RuleList, ok bool) {
	first, list, ok = p.image.Slot(id, dir)
	if own := p.ends.lists[id].List(dir); own.Digest() == list.Digest() {
		list = own // of equal lists the newest has the origins
	}
	if p.state == policyAdopted {
		record := p.plane.Record(id)
		first = p.plane.Word(record*compile.LineWords + compile.RecordSlot + uint32(dir))
	}
	return first, list, ok
}

// sides returns those of some endpoints that a flow meets, the sender's first. Traffic of a pod to
// itself meets none.
func (p *policy) sides(ids []uint32, f api.Flow) (out []side) {
	read, record := compile.Reader{Word: p.plane.Word}, p.plane.Record
	if p.state == policyAdopted {
		read, record = compile.Reader{Word: p.image.Words()}, p.image.Record
	}
	for _, id := range ids {
		line := record(id)
		if line == 0 {
			continue
		}
		switch src, dst := read.Has(line, f.Src), read.Has(line, f.Dst); {
		case src && !dst:
			out = append(out, side{id, compile.FromPod})
		case dst && !src:
			out = append(out, side{id, compile.ToPod})
		}
	}
	slices.SortFunc(out, func(a, b side) int { return cmp.Or(cmp.Compare(b.dir, a.dir), cmp.Compare(a.id, b.id)) })
	return out
}
