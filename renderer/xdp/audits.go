package xdp

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp/internal/attach"
)

// ErrForeign is returned by Apply while Sluice programs of another pin folder run at interfaces of
// pods. Their verdicts are not those of this agent's policy.
var ErrForeign = errors.New("programs of another Sluice agent are attached")

// ErrBefore is returned by Apply while a program of others runs before Sluice's, and is put back
// there again and again.
var ErrBefore = errors.New("programs of others may permit what policy denies")

// auditEvery is the shortest time between two audits of the kernel's state, unless a look finds
// something. lookEvery is the time between two looks.
const (
	auditEvery = 30 * time.Second
	lookEvery  = time.Second
)

// auditor is a dataplane that others can change.
type auditor interface {
	audit() (finding, error)
	// altered describes how an attached endpoint differs from what this process wrote, empty if it
	// does not. It repairs nothing.
	altered(id uint32) (string, error)
	// look describes a change by others that can be found at little cost, empty if there is none.
	// It repairs nothing.
	look() (string, error)
}

// finding is the result of an audit. The audit has repaired all drift that it counts, except that
// of the policy map, which the caller must replace.
type finding struct {
	drift     attach.Drift
	policyMap bool // the policy map must be replaced
	foreign   []attach.ForeignProgram
}

// audits records what others changed in the kernel.
type audits struct {
	last    time.Time
	drift   attach.Drift       // of all audits
	foreign []renderer.Foreign // programs of others that the last audit found
	seen    string             // by the last look, and not repaired yet
	failed  bool               // the last audit could not repair everything
}

// due reports whether the next Apply must audit: after auditEvery, after a look that found
// something, and while foreign programs are attached.
func (a *audits) due() bool {
	return a.seen != "" || a.failed || len(a.foreign) > 0 || time.Since(a.last) >= auditEvery
}

// add counts and logs drift.
func (a *audits) add(drift attach.Drift, log *slog.Logger) {
	for kind, n := range drift {
		a.drift[kind] += n
		log.Warn("another process changed the dataplane, the change was repaired", "kind", kind, "times", n)
	}
}

// setForeign records the programs of others. It returns ErrForeign if some of them are Sluice's,
// and ErrBefore if others run before Sluice's.
func (a *audits) setForeign(all []attach.ForeignProgram, owner map[uint32]api.PodID) error {
	a.foreign = nil
	var sluices, before []string
	for _, x := range all {
		f := renderer.Foreign{
			Object: fmt.Sprintf("program %d", x.Program), Tag: x.Name, At: fmt.Sprintf("interface %d", x.ID), Direction: api.Ingress, First: x.First,
			Place: "it runs after Sluice's, and may drop what policy permits",
		}
		if x.FromPod {
			f.Direction = api.Egress
		}
		if x.First {
			f.Place = "it runs before Sluice's, and may permit what policy denies"
		}
		if pod := owner[x.ID]; pod != (api.PodID{}) {
			f.Pods = []api.PodID{pod}
		}
		a.foreign = append(a.foreign, f)
		name := fmt.Sprintf("%s (%s) at %s", f.Object, x.Name, f.At)
		switch {
		case x.IsSluice():
			sluices = append(sluices, name)
		case x.First:
			before = append(before, name)
		}
	}
	switch {
	case len(sluices) > 0:
		return fmt.Errorf("%w: %s; stop the other agent and run sluice-agent cleanup --all --xdp-pins with its pin folder", ErrForeign, renderer.Summary(sluices))
	case len(before) > 0:
		return fmt.Errorf("%w: they are attached before Sluice's again and again: %s; end what attaches them", ErrBefore, renderer.Summary(before))
	}
	return nil
}
