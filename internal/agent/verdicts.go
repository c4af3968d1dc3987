package agent

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/node"
	"github.com/sluice-net/sluice/renderer/acl"
)

// verdictInterval is how often the counters of rules are read for the log.
const verdictInterval = time.Second

// verdictKey is what verdicts are counted by: a rule of policies, in every table.
type verdictKey struct {
	action  api.Action
	origins string
}

// verdictLog logs what rules decided. It reads counters, so it costs nothing per
// packet.
type verdictLog struct {
	denials bool // only these
	last    map[verdictKey]uint64
}

// logVerdicts logs until the context ends. Which verdicts, the settings say.
func (a *Agent) logVerdicts(ctx context.Context) {
	if a.cfg.LogVerdicts == verdictsNone {
		return
	}
	l := verdictLog{denials: a.cfg.LogVerdicts == verdictsDeny}
	ticker := time.NewTicker(verdictInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		for _, v := range l.since(a.node.DumpHits().Tables) {
			a.log.Info("verdict", "action", v.key.action, "packets", v.packets, "rule", v.key.origins)
		}
	}
}

// verdict is how many flows a rule decided.
type verdict struct {
	key     verdictKey
	packets uint64
}

// since returns what was counted since the last call, sorted.
func (l *verdictLog) since(tables []acl.DumpTable) (out []verdict) {
	now := map[verdictKey]uint64{}
	for _, t := range tables {
		for i, hits := range t.Hits {
			action := t.Rules[i].Action
			if hits == 0 || l.denials && action != api.Deny {
				continue
			}
			key := verdictKey{action, "none"}
			if from := t.HitOrigins(i); len(from) > 0 {
				key.origins = node.OriginsText(from)
			}
			now[key] += hits
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

func compareVerdicts(a, b verdictKey) int {
	if a.action != b.action {
		return int(a.action) - int(b.action)
	}
	return strings.Compare(a.origins, b.origins)
}
