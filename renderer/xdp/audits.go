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

// ErrForeign is returned by Commit while programs of Sluice run at interfaces of pods that belong
// to other pins: what they drop or permit is not what this agent enforces.
var ErrForeign = errors.New("programs of Sluice that are not this agent's are attached")

// auditEvery is how often a Commit reads back what is in the kernel, at most.
const auditEvery = 30 * time.Second

// auditor is a plane that others can change.
type auditor interface {
	audit() (finding, error)
}

// finding is what an audit found. What is counted is repaired, but for the policy map, which has to
// be made anew.
type finding struct {
	drift     attach.Drift
	policyMap bool
	aliens    []attach.Alien
}

// audits are what was found in the kernel that others changed.
type audits struct {
	last    time.Time
	drift   attach.Drift       // all that was found
	foreign []renderer.Foreign // programs of others, of the last audit
}

// due reports whether the kernel was not read back for a time, or programs of others are there.
func (a *audits) due() bool {
	return len(a.foreign) > 0 || time.Since(a.last) >= auditEvery
}

// add counts what was found.
func (a *audits) add(drift attach.Drift, log *slog.Logger) {
	for kind, n := range drift {
		a.drift[kind] += n
		log.Warn("somebody changed what enforces in the kernel, it is repaired", "kind", kind, "times", n)
	}
}

// judge notes programs of others. Those of Sluice are an error.
func (a *audits) judge(all []attach.Alien, owner map[uint32]api.PodID) error {
	a.foreign = nil
	var sluices []string
	for _, x := range all {
		f := renderer.Foreign{
			Object: fmt.Sprintf("program %d", x.Program), Tag: x.Name, At: fmt.Sprintf("interface %d", x.ID), Direction: api.Ingress, First: x.First,
			Place: "it runs behind Sluice's, and may drop what policy permits",
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
		if x.IsSluice() {
			sluices = append(sluices, fmt.Sprintf("%s (%s) at %s", f.Object, x.Name, f.At))
		}
	}
	if len(sluices) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s; end the other agent and run sluice-agent cleanup --all --xdp-pins with its folder", ErrForeign, renderer.Summary(sluices))
}
