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

// policyDataplane is the part of a dataplane that holds policy maps.
type policyDataplane interface {
	switcher
	writer
	reader
}

// policy is the image of the desired policy, and the state of the dataplane's policy map.
type policy struct {
	dataplane policyDataplane
	log       *slog.Logger
	maxLines  int
	options   compile.Options

	image     *compile.Image
	endpoints endpoints // of the image
	state     policyState
	counters  *ruleCounters
	reclaimer reclaimer
}

func newPolicy(o Options, counters *ruleCounters, d *desired) *policy {
	p := &policy{
		dataplane: o.Dataplane, log: o.Log, maxLines: o.MaxLines, counters: counters, endpoints: newEndpoints(),
		options: compile.Options{Infra: o.Infra.Addresses, Members: d.sets, Limits: o.limits()},
	}
	p.begin()
	return p
}

// begin starts with an empty image.
func (p *policy) begin() {
	p.reclaimer.wait()
	p.reclaimer.takeReleasable()
	p.image = compile.NewImage(p.options)
	p.endpoints.lists = map[uint32]compile.Endpoint{}
	p.on(policyRenewed)
}

func (p *policy) on(e policyEvent) { p.state = p.state.after(e) }

// arrange brings the endpoints of the image to the desired ones. It returns an error for each
// endpoint that the image cannot hold, and blocks that one.
func (p *policy) arrange(want endpoints) (problems []error) {
	for id := range p.endpoints.lists {
		if _, ok := want.lists[id]; !ok {
			p.image.Remove(id)
			delete(p.endpoints.lists, id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(want.lists)) {
		e := want.lists[id]
		old, ok := p.endpoints.lists[id]
		if ok && same(old, e) {
			p.endpoints.lists[id] = e // with new origins, which the digest of a list does not cover
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
		p.endpoints.lists[id] = e
	}
	p.endpoints.owner = want.owner
	return problems
}

func same(a, b compile.Endpoint) bool {
	return slices.Equal(a.IPs, b.IPs) && sameList(a.ToPod, b.ToPod) && sameList(a.FromPod, b.FromPod) && a.Flags == b.Flags && a.Owner == b.Owner
}

func sameList(a, b *renderer.RuleList) bool {
	return a == b || a != nil && b != nil && a.Digest() == b.Digest()
}

// current reports whether all earlier plans were carried out.
func (p *policy) current() bool { return p.state == policyInstalled || p.state == policyAdopted }

// plan returns the plan that brings the dataplane to the desired policy. With anew, the plan needs
// a new policy map. The error explains why no policy map is large enough.
func (p *policy) plan() (plan compile.Plan, anew bool, err error) {
	plan = p.image.Plan(p.state != policyInstalled)
	lines, slots := p.dataplane.Size()
	anew = !p.state.isOurs() || plan.Lines > lines || p.countable(plan) > slots
	if anew && p.fits(plan) != nil {
		plan = p.compact()
		err = p.fits(plan)
	}
	return plan, anew, err
}

// fits returns an error if a plan needs more lines than a policy map may have.
func (p *policy) fits(plan compile.Plan) error {
	lines, _ := p.dataplane.Limits()
	return loader.CheckLines(plan.Lines, min(lines, p.maxLines))
}

// countable returns how many counters a plan gets. Rules beyond the limit of the dataplane are
// enforced, but not counted.
func (p *policy) countable(plan compile.Plan) int {
	_, slots := p.dataplane.Limits()
	return min(plan.Slots, slots)
}

// compact rebuilds the image from scratch, which makes it as small as possible.
func (p *policy) compact() compile.Plan {
	eps := p.endpoints.lists
	p.begin()
	for _, id := range slices.Sorted(maps.Keys(eps)) {
		if err := p.image.Set(eps[id]); err == nil {
			p.endpoints.lists[id] = eps[id]
		}
	}
	return p.image.Plan(true)
}

// adopt takes over the policy map that an earlier process wrote.
func (p *policy) adopt() {
	p.image.Plan(false) // builds the image, so that it can be read
	p.on(policyMatched)
}

// prepare creates a policy map and writes the whole image to it.
func (p *policy) prepare(plan compile.Plan) error {
	p.on(policyRenewed)
	if n := p.countable(plan); n < plan.Slots {
		p.log.Warn("not all rules have packet counters: this kernel limits the size of map values", "counters", n, "wanted", plan.Slots)
	}
	if err := p.dataplane.Prepare(plan.Lines, p.countable(plan)); err != nil {
		return fmt.Errorf("create a policy map of %d lines: %w", plan.Lines, err)
	}
	if err := p.image.Parts(compile.Span{Lines: uint32(plan.Lines)}, p.dataplane.Write); err != nil {
		return fmt.Errorf("write the policy map: %w", err)
	}
	for _, id := range slices.Sorted(maps.Keys(p.endpoints.lists)) {
		if err := p.dataplane.Flip(id, p.image.Record(id)); err != nil {
			return fmt.Errorf("endpoint %d: %w", id, err)
		}
	}
	return nil
}

// swap puts the prepared policy map in force.
func (p *policy) swap() error {
	since := events.SinceBoot()
	err := p.counters.leave(func() ([]uint64, error) {
		left, err := p.dataplane.Switch()
		if err == nil {
			p.on(policySwitched)
		}
		return left, err
	}, p.slot)
	if err != nil {
		return fmt.Errorf("put the new policy map in force: %w", err)
	}
	p.recordOwners(since)
	return nil
}

// write writes lines and words that no packet reads yet.
func (p *policy) write(plan compile.Plan) error {
	for _, s := range plan.Fresh {
		if err := p.image.Parts(s, p.dataplane.Write); err != nil {
			return fmt.Errorf("write the policy map: %w", err)
		}
	}
	return p.store(plan.Stores)
}

func (p *policy) store(stores []compile.Store) error {
	for _, s := range stores {
		if err := p.dataplane.Store(s.Word, s.Value); err != nil {
			return fmt.Errorf("write the policy map: %w", err)
		}
	}
	return nil
}

// publish makes what was written visible to packets: first changed endpoints, then changed
// addresses, then new endpoints.
func (p *policy) publish(plan compile.Plan) error {
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
		if err := p.dataplane.Flip(f.ID, f.Record); err != nil {
			return fmt.Errorf("endpoint %d: %w", f.ID, err)
		}
	}
	return nil
}

// done records that the last plan was carried out. What it made unreachable is released after a
// grace period.
func (p *policy) done() {
	p.reclaimer.add(p.image.Done(), p.dataplane.Grace, p.log)
}

// release frees unreachable memory and counters whose grace period is over.
func (p *policy) release() {
	for _, x := range p.reclaimer.takeReleasable() {
		if err := p.counters.release(x.Slots(), p.dataplane.Hits); err != nil {
			p.log.Warn("packet counters of removed rules cannot be read, their last packets are not counted", "error", err)
		}
		p.image.Release(x)
	}
}

// recordOwners records which lists own the counters since a time.
func (p *policy) recordOwners(since time.Duration) {
	p.counters.recordOwners(slices.Sorted(maps.Keys(p.endpoints.lists)), p.slot, since)
}

// slot returns the list in force for a direction of an endpoint, and the counter of its first rule.
// If an earlier process wrote the policy map, the counter is read from there.
func (p *policy) slot(id uint32, dir compile.Direction) (first uint32, list *renderer.RuleList, ok bool) {
	first, list, ok = p.image.Slot(id, dir)
	if own := p.endpoints.lists[id].List(dir); own.Digest() == list.Digest() {
		list = own // of equal lists the newest has the current origins
	}
	if p.state == policyAdopted {
		record := p.dataplane.Record(id)
		first = p.dataplane.Word(record*compile.LineWords + compile.RecordSlot + uint32(dir))
	}
	return first, list, ok
}

// sides returns the sides of a flow among some endpoints, the sender's first. Traffic of a pod to
// itself has none.
func (p *policy) sides(ids []uint32, f api.Flow) (out []side) {
	read, record := compile.Reader{Word: p.dataplane.Word}, p.dataplane.Record
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
