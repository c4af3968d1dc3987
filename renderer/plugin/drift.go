package plugin

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/plugin/binapi/sluice"
)

// driftArc is the kind of drift that the plugin repairs: another process took a node of the plugin
// from an arc of an interface.
const driftArc = "arc"

// drift counts what others changed in VPP, and the plugin repaired.
type drift struct {
	log   *slog.Logger
	seen  bool   // what the plugin had repaired before this agent is known
	last  uint64 // what the plugin has repaired since the start of VPP
	total atomic.Uint64
}

// counted takes what the plugin has repaired since the start of VPP.
func (d *drift) counted(repaired uint64) {
	n := repaired - d.last
	if repaired < d.last { // another VPP
		n = repaired
	}
	if d.seen && n > 0 {
		d.total.Add(n)
		d.log.Warn("another process changed the dataplane, the change was repaired", "kind", driftArc, "times", n)
	}
	d.seen, d.last = true, repaired
}

// in adds the drift to a State.
func (d *drift) in(s *renderer.State) {
	s.Drift = maps.Clone(s.Drift)
	if s.Drift == nil {
		s.Drift = map[string]uint64{}
	}
	s.Drift[driftArc] = d.total.Load()
}

// unjudged returns an error that names the interfaces of pods whose packets the plugin cannot
// judge; nil if there are none.
func (p *plane) unjudged() error {
	var errs []error
	for _, index := range slices.Sorted(maps.Keys(p.judged)) {
		n, known := p.all[index]
		if !known {
			continue
		}
		switch state := p.judged[index]; {
		case state == sluice.SLUICE_API_OPEN:
			errs = append(errs, fmt.Errorf("interface %s with tag %q is open: nodes of the plugin do not stay on its arcs", n.name, n.tag))
		case state == sluice.SLUICE_API_BRIDGED && len(p.owners[index]) > 0:
			errs = append(errs, fmt.Errorf("interface %s of pod %s %s", n.name, p.owners[index][0], isBridged))
		}
	}
	return errors.Join(errs...)
}
