package xdp

import (
	"errors"
	"fmt"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp/internal/attach"
)

// ErrForeign is returned by Commit while programs of Sluice run at interfaces of pods that belong to
// other pins: what they drop or permit is not what this agent enforces.
var ErrForeign = errors.New("programs of Sluice that are not this agent's are attached")

// auditor is a plane that others can change.
type auditor interface {
	audit() (finding, error)
}

// auditEvery is how often a Commit reads back what is in the kernel, at most.
const auditEvery = 30 * time.Second

// missing reports whether endpoints are not attached any more that should be: their interface was made
// again with the same number, or somebody detached what was attached.
func (r *Renderer) missing() (lost bool, err error) {
	if len(r.attached) == 0 {
		return false, nil
	}
	ids, err := r.options.Plane.Attached()
	if err != nil {
		return false, fmt.Errorf("what is attached: %w", err)
	}
	there := make(map[uint32]bool, len(ids))
	for _, id := range ids {
		there[id] = true
	}
	for id := range r.attached {
		if _, needed := r.ends[id]; needed && !there[id] {
			r.attached[id], r.lost[id] = false, true
			lost = true
		}
	}
	return lost, nil
}

// audit reads back what is in the kernel when that was not done for a time, and repairs it. It returns
// what only people can repair.
func (r *Renderer) audit() error {
	a, ok := r.options.Plane.(auditor)
	if !ok || len(r.attached) == 0 {
		r.foreign = nil
		return nil
	}
	if len(r.foreign) == 0 && time.Since(r.audited) < auditEvery {
		return nil
	}
	r.audited = time.Now()
	f, err := a.audit()
	for kind, n := range f.drift {
		r.drift[kind] += n
		r.log.Warn("somebody changed what enforces in the kernel, it is repaired", "kind", kind, "times", n)
	}
	if f.policyMap {
		r.started, r.adopted, r.again = false, false, true
		err = errors.Join(err, r.options.Plane.SetMark(Mark{}))
	}
	return errors.Join(err, r.judge(f.aliens))
}

// judge notes programs of others. Those of Sluice are an error.
func (r *Renderer) judge(all []attach.Alien) error {
	r.foreign = nil
	var sluices []string
	for _, a := range all {
		pod := r.owner[a.ID]
		f := renderer.Foreign{
			Object: fmt.Sprintf("program %d", a.Program), Tag: a.Name, At: fmt.Sprintf("interface %d", a.ID), Direction: api.Ingress, First: a.First,
			Place: "it runs behind Sluice's, and may drop what policy permits",
		}
		if a.FromPod {
			f.Direction = api.Egress
		}
		if a.First {
			f.Place = "it runs before Sluice's, and may permit what policy denies"
		}
		if pod != (api.PodID{}) {
			f.Pods = []api.PodID{pod}
		}
		r.foreign = append(r.foreign, f)
		if a.IsSluice() {
			sluices = append(sluices, fmt.Sprintf("%s (%s) at %s", f.Object, a.Name, f.At))
		}
	}
	if len(sluices) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s; end the other agent and run sluice-agent cleanup --all --xdp-pins with its folder", ErrForeign, renderer.Summary(sluices))
}
