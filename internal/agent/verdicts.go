package agent

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// verdictInterval is how often the counters of rules are read for the log.
const verdictInterval = time.Second

// verdictKey is what verdicts are counted by: a rule of policies, in every table.
type verdictKey struct {
	renderer string
	action   string // deny, permit, or audit for what is permitted and would be denied
	origins  string
}

// verdictLog logs what rules decided. It reads counters, so it costs nothing per
// packet.
type verdictLog struct {
	denials bool // only these
	last    map[verdictKey]uint64
}

// logVerdicts logs until the context ends. Which verdicts, the settings say.
func (a *Agent) logVerdicts(ctx context.Context) error {
	logged, denials := a.cfg.Log.Verdict()
	if !logged {
		return nil
	}
	l := verdictLog{denials: denials}
	ticker := time.NewTicker(verdictInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		for _, v := range l.since(a.node.Counters()) {
			a.log.Info("verdict", "action", v.key.action, "packets", v.packets, "rule", v.key.origins, "renderer", v.key.renderer)
		}
	}
}

// actionAudit is the action of traffic that policies in audit mode would deny.
const actionAudit = "audit"

// verdict is how many flows a rule decided.
type verdict struct {
	key     verdictKey
	packets uint64
}

// since returns what was counted since the last call, sorted.
func (l *verdictLog) since(states []*renderer.State) (out []verdict) {
	now := map[verdictKey]uint64{}
	for _, s := range states {
		for _, t := range s.Tables {
			l.count(now, s.Renderer, t)
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(now), compareVerdicts) {
		n := now[key]
		if was := l.last[key]; n >= was {
			n -= was
		}
		if n > 0 {
			out = append(out, verdict{key, n})
		}
	}
	l.last = now
	return out
}

// count adds what the rules of a table decided.
func (l *verdictLog) count(now map[verdictKey]uint64, name string, t renderer.Table) {
	for i, packets := range t.Packets {
		r := t.Rules[i]
		if packets == 0 || l.denials && r.Action != api.Deny && !r.Audit {
			continue
		}
		key := verdictKey{name, r.Action.String(), "none"}
		if r.Audit {
			key.action = actionAudit
		}
		if from := t.CountedOrigins(i); len(from) > 0 {
			key.origins = originsText(from)
		}
		now[key] += packets
	}
}

func compareVerdicts(a, b verdictKey) int {
	return cmp.Or(strings.Compare(a.action, b.action), strings.Compare(a.origins, b.origins), strings.Compare(a.renderer, b.renderer))
}

// maxLoggedOrigins bounds the rules that one line names.
const maxLoggedOrigins = 5

func originsText(origins []api.Origin) string {
	var parts []string
	for _, o := range origins[:min(len(origins), maxLoggedOrigins)] {
		parts = append(parts, o.String())
	}
	if n := len(origins) - maxLoggedOrigins; n > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", n))
	}
	return strings.Join(parts, "; ")
}
