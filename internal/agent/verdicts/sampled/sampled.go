// Package sampled derives verdicts about packets from VPP's rule counters, since VPP reports no
// packets, and can trace the next packets of an input node.
//
// # Invariants
//
//   - Counters are read once a second and only while verdicts are wanted. VPP does nothing for it.
//   - Packets are traced only where settings name input nodes, a few for each second, and not while
//     VPP holds traces of another owner when that begins.
package sampled

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/agent/verdicts"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl"
	"github.com/sluice-net/sluice/renderer/vpp"
)

const (
	interval = time.Second
	// tracedPackets is how many packets of an input node and worker are traced in an interval.
	tracedPackets = 20
)

// Rules are those that a renderer has installed.
type Rules interface {
	Counters() *renderer.State
	Guarded() []renderer.Table
	Source(aclIndex, rule uint32) (acl.Source, bool)
	Endpoints() []vpp.Bound
}

// Source implements verdicts.Source.
type Source struct {
	Rules  Rules
	Socket string   // of VPP's binary API, for traces
	Nodes  []string // input nodes of VPP whose packets are traced; none: none
	Log    *slog.Logger

	wanted atomic.Int32 // a verdicts.Wanted
}

// Report implements verdicts.Source.
func (s *Source) Report(w verdicts.Wanted) error {
	s.wanted.Store(int32(w))
	return nil
}

// errForeign keeps from clearing what another process has traced.
var errForeign = errors.New("VPP has packet traces of another user: clear them (\"clear trace\"), and watch again")

// ruleKey identifies a rule of a table.
type ruleKey struct {
	table string
	rule  int
}

// Events implements verdicts.Source. What was counted before is not reported.
func (s *Source) Events(ctx context.Context, f func(verdicts.Event)) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	t := tracer{source: s}
	defer t.close()
	t.begin(ctx)
	before := counts(s.counted())
	traced := map[string]uint64{} // by cause: reported already, and not found in the counters yet
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
		for _, e := range t.takeTraced(ctx) {
			traced[causeOf(e.Action, e.Decision.Origins)]++
			s.tell(f, e)
		}
		state := s.counted()
		now := counts(state)
		for _, e := range decided(state, before, now, traced) {
			s.tell(f, e)
		}
		before = now
	}
}

func (s *Source) tell(f func(verdicts.Event), e verdicts.Event) {
	if e.Action == api.Deny || verdicts.Wanted(s.wanted.Load()) == verdicts.All {
		f(e)
	}
}

// counted returns all tables that have counters.
func (s *Source) counted() *renderer.State {
	out := *s.Rules.Counters()
	out.Tables = slices.Clone(out.Tables)
	for _, t := range s.Rules.Guarded() {
		t.Name = guardName(t.Name)
		out.Tables = append(out.Tables, t)
	}
	return &out
}

// guardName tells the counters of a guard from those of a table with the same name.
func guardName(table string) string { return "guard of " + table }

// counts returns the counters of rules.
func counts(s *renderer.State) map[ruleKey]uint64 {
	out := map[ruleKey]uint64{}
	for _, t := range s.Tables {
		for i, n := range t.Packets {
			out[ruleKey{t.Name, i}] = n
		}
	}
	return out
}

// decided returns what rules decided between two counts, without what was traced. A counter that
// began anew counts from 0.
func decided(s *renderer.State, before, now map[ruleKey]uint64, traced map[string]uint64) (out []verdicts.Event) {
	for _, t := range s.Tables {
		for i := range t.Packets {
			k := ruleKey{t.Name, i}
			n := now[k]
			if was := before[k]; n >= was {
				n -= was
			}
			if n == 0 {
				continue
			}
			origins := t.CountedOrigins(i)
			cause := causeOf(t.Rules[i].Action, origins)
			known := min(n, traced[cause])
			if traced[cause] -= known; traced[cause] == 0 {
				delete(traced, cause)
			}
			if n -= known; n == 0 || len(origins) == 0 && t.Rules[i].Action == api.Permit {
				continue // nothing, or packets that no policy is about
			}
			e := verdicts.Event{
				Time: time.Now(), Action: t.Rules[i].Action, Packets: n, Direction: directionOf(origins),
				Decision: renderer.Decision{Renderer: s.Renderer, Table: t.Name, Rule: i, Match: t.Rules[i], Action: t.Rules[i].Action, Origins: origins},
			}
			if e.Action == api.Deny {
				e.Reason = verdicts.ReasonPolicy
			}
			if len(t.Pods) == 1 {
				e.Pod = t.Pods[0]
			}
			out = append(out, e)
		}
	}
	return out
}

// causeOf identifies rules that decide for the same policies, in whatever table.
func causeOf(a api.Action, origins []api.Origin) string {
	return a.String() + " " + api.OriginTexts(origins)
}

func directionOf(origins []api.Origin) api.Direction {
	if len(origins) > 0 {
		return origins[0].Direction
	}
	return api.Ingress
}

// tracer takes traces of packets.
type tracer struct {
	source *Source
	link   *vpp.Link // nil while nothing is traced
}

// begin connects, unless no packets are to be traced. What fails is logged: counters go on.
func (t *tracer) begin(ctx context.Context) {
	if len(t.source.Nodes) == 0 {
		return
	}
	var err error
	if t.link, err = vpp.Dial(vpp.Options{Socket: t.source.Socket, Client: "sluice-traces"}); err == nil {
		err = t.start(ctx)
	}
	if err != nil {
		t.fail(err)
	}
}

func (t *tracer) start(ctx context.Context) error {
	if _, _, err := t.link.Connect(ctx); err != nil {
		return err
	}
	text, err := t.link.CLI(ctx, "show trace max 1")
	if err != nil {
		return err
	}
	if strings.Contains(text, "Packet 1") {
		return errForeign
	}
	return t.again(ctx)
}

// again has the next packets traced.
func (t *tracer) again(ctx context.Context) error {
	for _, node := range t.source.Nodes {
		answer, err := t.link.CLI(ctx, fmt.Sprintf("trace add %s %d", node, tracedPackets))
		if err != nil {
			return err
		}
		if answer = strings.TrimSpace(answer); answer != "" {
			return fmt.Errorf("trace add %s: %.200q", node, answer)
		}
	}
	return nil
}

// takeTraced returns what was traced since the last call.
func (t *tracer) takeTraced(ctx context.Context) []verdicts.Event {
	if t.link == nil {
		return nil
	}
	text, err := t.link.CLI(ctx, fmt.Sprintf("show trace max %d", tracedPackets*len(t.source.Nodes)))
	if err == nil {
		_, err = t.link.CLI(ctx, "clear trace")
	}
	if err == nil {
		err = t.again(ctx)
	}
	if err != nil && ctx.Err() == nil {
		t.fail(err)
	}
	return t.source.events(sightings(text))
}

// fail ends the traces, which a new watch begins again.
func (t *tracer) fail(err error) {
	t.source.Log.Warn("packets of VPP cannot be traced; verdicts come from rule counters", "error", err)
	t.close()
}

func (t *tracer) close() {
	if t.link == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), interval)
	defer cancel()
	_, _ = t.link.CLI(ctx, "clear trace") // VPP may be gone
	t.link.Close()
	t.link = nil
}
