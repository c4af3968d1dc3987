package agent

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/sluice-net/sluice/internal/agent/cluster"
	"github.com/sluice-net/sluice/internal/lib/preflight"
	"github.com/sluice-net/sluice/internal/lib/term"
	"github.com/sluice-net/sluice/plugins/policy"
)

// enforcingEvery is how often at most a change of the numbers is logged.
const enforcingEvery = time.Minute

// enforcementLog logs when everything that was received is enforced: when that begins, for the
// first time or again, when the first policy comes or the last one goes, and, at most every minute,
// when other numbers change. That a renderer fails, and why, is logged by the policy plugin.
type enforcementLog struct {
	log    *slog.Logger
	tables func() map[string]int // installed, by renderer; those that are not in it are not counted
	last   policy.Status         // that was logged
	inSync bool
	at     time.Time // of the last line
}

// see takes a status, and returns how long to wait at most before it wants the next one; 0: until
// there is one.
func (e *enforcementLog) see(s policy.Status, now time.Time) (wait time.Duration) {
	same := s.Policies == e.last.Policies && s.Pods == e.last.Pods && s.Unenforced == e.last.Unenforced
	switch {
	case !s.BusySince.IsZero(): // its outcome is the next status
		return 0
	case !s.Synced || !s.InSync():
		e.inSync = false
		return 0
	case e.inSync && same:
		return 0
	case e.inSync && (s.Policies == 0) == (e.last.Policies == 0) && now.Sub(e.at) < enforcingEvery:
		return enforcingEvery - now.Sub(e.at)
	}
	e.inSync, e.last, e.at = true, s, now
	args := []any{"policies", s.Policies, "pods", s.Pods, "dataplanes", e.dataplanes(s.Renderers), "revision", s.Revision}
	if s.Unenforced > 0 {
		args = append(args, "partially_enforced", s.Unenforced)
	}
	e.log.Info("enforcing policies", args...)
	return 0
}

// dataplanes names the renderers, with their tables where these are counted.
func (e *enforcementLog) dataplanes(renderers []policy.RendererStatus) string {
	tables := e.tables()
	out := make([]string, len(renderers))
	for i, r := range renderers {
		out[i] = r.Name
		if n, counted := tables[r.Name]; counted {
			out[i] = fmt.Sprintf("%s: %s", r.Name, term.Count(n, "table"))
		}
	}
	return strings.Join(out, ", ")
}

// tableCounts returns how many tables each renderer has installed that can say it.
func (a *Agent) tableCounts() map[string]int {
	counts := map[string]int{}
	for _, s := range a.node.States() {
		counts[s.Renderer] = len(s.Tables)
	}
	return counts
}

// logEnforcement logs what is enforced, and once that no object names the node, until ctx ends.
func (a *Agent) logEnforcement(ctx context.Context) error {
	e := enforcementLog{log: a.log, tables: a.tableCounts}
	named := namedNode{ask: a.cfg.Node.Name != ""}
	for {
		var again <-chan time.Time
		s := a.node.Plugin.Status()
		if wait := e.see(s, time.Now()); wait > 0 {
			again = time.After(wait)
		}
		named.see(ctx, s, a)
		select {
		case <-a.committed:
		case <-again:
		case <-ctx.Done():
			return nil
		}
	}
}

// namedNode checks whether the store knows the node, while it has no pod.
type namedNode struct {
	ask   bool // the node is not known yet
	asked time.Time
}

func (n *namedNode) see(ctx context.Context, s policy.Status, a *Agent) {
	if !n.ask || !s.Synced || time.Since(n.asked) < enforcingEvery {
		return
	}
	if n.ask = s.Local == 0; !n.ask {
		return
	}
	n.asked = time.Now()
	ctx, cancel := context.WithTimeout(ctx, preflight.Limit)
	defer cancel()
	known, err := cluster.NamesOf(ctx, a.store, a.cfg.Store.Prefix, a.cfg.Node.Name)
	if err != nil || !known.Named && len(known.Others) == 0 {
		return // it is asked again
	}
	if n.ask = false; !known.Named {
		a.log.Warn("no Pod or Node object names this node", "node", a.cfg.Node.Name, "remedy", known.Remedy(a.cfg.Node.Name))
	}
}
