package xdp

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
	"github.com/sluice-net/sluice/renderer/xdp/internal/attach"
	"github.com/sluice-net/sluice/renderer/xdp/internal/events"
	"github.com/sluice-net/sluice/renderer/xdp/internal/loader"
)

const reasonMemory = "the memory of the classifier is full"

// install carries out what the image has that the plane has not.
func (r *Renderer) install(mark Mark) error {
	plane := r.options.Plane
	anew := r.adopted || !r.known()
	p := r.image.Plan(r.again)
	lines, slots := plane.Size()
	anew = anew || p.Lines > lines || r.countable(p) > slots
	if anew && r.fits(p) != nil {
		p = r.compact()
		if err := r.fits(p); err != nil {
			r.refuse()
			return cmp.Or(r.attach(p), err) // closed, because they are not known
		}
	}
	if !anew && p.Empty() && r.settled() {
		r.retire(r.image.Done())
		return r.setMark(mark)
	}
	if err := r.setMark(Mark{}); err != nil {
		return err
	}
	if err := r.carry(p, anew); err != nil {
		return err
	}
	r.retire(r.image.Done())
	return r.setMark(mark)
}

// fits returns why a plan cannot be carried out.
func (r *Renderer) fits(p compile.Plan) error {
	lines, _ := r.options.Plane.Limits()
	return loader.CheckLines(p.Lines, min(lines, r.options.MaxLines))
}

// countable is how many counters a plan gets. Rules beyond what the plane can count are enforced
// like others.
func (r *Renderer) countable(p compile.Plan) int {
	_, slots := r.options.Plane.Limits()
	return min(p.Slots, slots)
}

func (r *Renderer) setMark(m Mark) error {
	if r.options.Plane.Mark() == m {
		return nil
	}
	if err := r.options.Plane.SetMark(m); err != nil {
		return fmt.Errorf("note what is enforced: %w", err)
	}
	return nil
}

// known says whether the plane's memory is the image's.
func (r *Renderer) known() bool {
	return r.started
}

// settled says whether exactly the endpoints that there are are attached.
func (r *Renderer) settled() bool {
	for _, attached := range r.attached {
		if !attached {
			return false
		}
	}
	return len(r.attached) == len(r.ends)
}

// compact begins with a new image, which is as small as can be.
func (r *Renderer) compact() compile.Plan {
	ends := r.ends
	r.forget()
	for _, id := range slices.Sorted(maps.Keys(ends)) {
		if err := r.image.Set(ends[id]); err == nil {
			r.ends[id] = ends[id]
		}
	}
	r.started = false
	return r.image.Plan(true)
}

// refuse notes that no rule that is not in force already will be.
func (r *Renderer) refuse() {
	pods := map[api.Origin]int{}
	for _, cfg := range r.told.pods {
		for _, l := range []*renderer.RuleList{cfg.Ingress, cfg.Egress} { // whose rules are of one direction
			for _, o := range originsOf(l) {
				pods[o]++
			}
		}
	}
	r.refused = nil
	for o, n := range pods {
		r.refused = append(r.refused, renderer.Unenforced{Origin: o, Class: api.ClassLimit, Reason: reasonMemory, Effect: renderer.EffectPrevious, Pods: n})
	}
	r.refused = renderer.SortUnenforced(r.refused)
}

// carry carries out a plan. With anew, everything is written to a new memory.
func (r *Renderer) carry(p compile.Plan, anew bool) error {
	steps := []func(compile.Plan) error{r.write, r.detach, r.flip, r.roots, r.join, r.attach}
	if anew {
		steps = []func(compile.Plan) error{r.prepare, r.detach, r.attach}
	}
	for _, step := range steps {
		if err := step(p); err != nil {
			return err
		}
	}
	r.started = true
	return nil
}

// prepare writes everything to a new memory and puts it in force.
func (r *Renderer) prepare(p compile.Plan) error {
	plane := r.options.Plane
	r.started = false
	if n := r.countable(p); n < p.Slots {
		r.log.Warn("not all rules are counted: the kernel has no larger values", "counters", n, "wanted", p.Slots)
	}
	if err := plane.Prepare(p.Lines, r.countable(p)); err != nil {
		return fmt.Errorf("make a memory of %d lines: %w", p.Lines, err)
	}
	if err := r.image.Parts(compile.Span{Lines: uint32(p.Lines)}, plane.Write); err != nil {
		return fmt.Errorf("write memory: %w", err)
	}
	for _, id := range slices.Sorted(maps.Keys(r.ends)) {
		if err := plane.Flip(id, r.image.Record(id)); err != nil {
			return fmt.Errorf("endpoint %d: %w", id, err)
		}
	}
	clear(r.named)
	since := events.SinceBoot()
	err := r.ledger.leave(func() ([]uint64, error) {
		left, err := plane.Switch()
		r.adopted = r.adopted && err != nil
		return left, err
	}, r.slot)
	if err != nil {
		return fmt.Errorf("put a new memory in force: %w", err)
	}
	r.note(since)
	ids, err := plane.Attached()
	if err != nil {
		return fmt.Errorf("what is attached: %w", err)
	}
	for _, id := range ids {
		r.attached[id] = true
	}
	return nil
}

func (r *Renderer) write(p compile.Plan) error {
	for _, s := range p.Fresh {
		if err := r.image.Parts(s, r.options.Plane.Write); err != nil {
			return fmt.Errorf("write memory: %w", err)
		}
	}
	return r.store(p.Stores)
}

func (r *Renderer) store(stores []compile.Store) error {
	for _, s := range stores {
		if err := r.options.Plane.Store(s.Word, s.Value); err != nil {
			return fmt.Errorf("write memory: %w", err)
		}
	}
	return nil
}

func (r *Renderer) flip(p compile.Plan) error  { return r.flips(p.Flips) }
func (r *Renderer) join(p compile.Plan) error  { return r.flips(p.Joins) }
func (r *Renderer) roots(p compile.Plan) error { return r.store(p.Roots) }

func (r *Renderer) flips(flips []compile.Flip) error {
	for _, f := range flips {
		if err := r.options.Plane.Flip(f.ID, f.Record); err != nil {
			return fmt.Errorf("endpoint %d: %w", f.ID, err)
		}
	}
	return nil
}

// detach lets go of endpoints that are no more, first of their packets.
func (r *Renderer) detach(compile.Plan) error {
	for _, id := range slices.Sorted(maps.Keys(r.attached)) {
		if _, ok := r.ends[id]; ok {
			continue
		}
		if r.options.Release != nil {
			if err := r.options.Release(id); err != nil {
				return fmt.Errorf("let go of interface %d: %w", id, err)
			}
		}
		if err := r.options.Plane.Detach(id); err != nil {
			return fmt.Errorf("detach from interface %d: %w", id, err)
		}
		if err := r.options.Plane.Flip(id, 0); err != nil {
			return fmt.Errorf("endpoint %d: %w", id, err)
		}
		delete(r.attached, id)
		delete(r.lost, id)
		delete(r.learning, id)
		delete(r.named, id)
	}
	return nil
}

// attach has packets of new endpoints decided.
func (r *Renderer) attach(compile.Plan) error {
	for _, id := range slices.Sorted(maps.Keys(r.ends)) {
		if e := r.ends[id]; !slices.Equal(r.named[id], e.IPs) {
			if err := r.options.Plane.Name(e); err != nil {
				return fmt.Errorf("interface %d of pod %s: %w", id, r.owner[id], err)
			}
			r.named[id] = e.IPs
		}
		if r.attached[id] {
			continue
		}
		r.attached[id] = false // whatever comes of it, something may be there to detach
		err := r.options.Plane.Attach(r.ends[id])
		if errors.Is(err, ErrGone) && r.ending.Ends(r.owner[id], time.Now()) {
			continue // who looks after interfaces will say so
		}
		if errors.Is(err, ErrGone) {
			r.gone = append(r.gone, fmt.Errorf("pod %s: interface %d is gone: %w", r.owner[id], id, renderer.ErrNoInterface))
			continue // the others need not wait until somebody says whose it was
		}
		if err != nil {
			return fmt.Errorf("attach to interface %d of pod %s: %w", id, r.owner[id], err)
		}
		r.attached[id] = true
		if r.lost[id] {
			r.drift[attach.DriftAttachment]++
		}
		delete(r.lost, id)
	}
	return nil
}

// release makes what nothing leads to any more available, if no packet is on its way that could
// have read it.
func (r *Renderer) release() {
	for _, x := range r.graces.take() {
		if err := r.ledger.release(x.Slots(), r.options.Plane.Hits); err != nil {
			r.log.Warn("what rules decided that are no more is not known", "error", err)
		}
		r.image.Release(x)
	}
}

// note takes down whose the counters are from a time on.
func (r *Renderer) note(since time.Duration) {
	r.ledger.note(slices.Sorted(maps.Keys(r.ends)), r.slot, since)
}

// slot returns the list that is in force for a direction of an endpoint, and the counter of its
// first rule, which a memory says that another process wrote.
func (r *Renderer) slot(id uint32, dir compile.Direction) (first uint32, list *renderer.RuleList, ok bool) {
	first, list, ok = r.image.Slot(id, dir)
	if own := r.ends[id].List(dir); own.Digest() == list.Digest() {
		list = own // of equal lists the newest has the origins
	}
	if r.adopted {
		record := r.options.Plane.Record(id)
		first = r.options.Plane.Word(record*compile.LineWords + compile.RecordSlot + uint32(dir))
	}
	return first, list, ok
}

// retire has memory released when a grace period is over.
func (r *Renderer) retire(x compile.Retired) {
	if !x.Empty() && !r.ended {
		r.graces.add(x, r.options.Plane.Grace, r.log)
	}
}
