package explain

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/plugins/policy"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/cache"
)

// Meanings are what sets stand for, by their names in rules.
type Meanings map[string]string

// setName matches the name of a set in a text.
var setName = regexp.MustCompile(`set:(?:node|[0-9a-f]{16})`)

// MeaningsOf returns what the sets of a snapshot stand for, and those that renderers make of the
// pods of one list.
func MeaningsOf(s *policy.Snapshot) Meanings {
	m := Meanings{}
	for _, set := range s.Sets {
		m["set:"+set.ID.String()] = set.Meaning
	}
	holders := map[api.SetID][]string{}
	for _, p := range s.Pods {
		for _, l := range []*renderer.RuleList{p.Ingress, p.Egress} {
			if l != nil {
				id := cache.PodsOf(l.Digest())
				holders[id] = append(holders[id], p.ID.String())
			}
		}
	}
	for id, pods := range holders {
		m["set:"+id.String()] = namedPods(pods)
	}
	return m
}

// namedPods names a few of some pods.
func namedPods(pods []string) string {
	const most = 3
	if more := len(pods) - most; more > 0 {
		return fmt.Sprintf("%s and %d more pods", strings.Join(pods[:most], ", "), more)
	}
	return strings.Join(pods, ", ")
}

// Text puts what sets stand for in place of their names: "set:5ed965f8e7c9d519" becomes "pods
// app=web in shop". A set that is not known keeps its name.
func (m Meanings) Text(text string) string {
	known := func(name string) string { return cmp.Or(m[name], name) }
	return setName.ReplaceAllStringFunc(text, func(name string) string {
		return setName.ReplaceAllStringFunc(known(name), known) // a set may be made of others
	})
}

// rulesOf returns the rules of decisions for people; an empty text where no rule matched.
func (m Meanings) rulesOf(decisions []renderer.Decision) []string {
	if m == nil {
		return nil
	}
	out := make([]string, len(decisions))
	for i, d := range decisions {
		if d.Rule >= 0 {
			out[i] = m.Rule(d.Match)
		}
	}
	return out
}

// Rule returns a rule for people: "permit tcp from pods app=web in shop to any port 8080".
func (m Meanings) Rule(r api.ContivRule) string {
	text := fmt.Sprintf("%s %s from %s", r.Action, r.Protocol, m.Text(r.Src.String()))
	if !r.SrcPort.IsAny() {
		text += " port " + r.SrcPort.String()
	}
	text += " to " + m.Text(r.Dst.String())
	if !r.DstPort.IsAny() {
		text += " port " + r.DstPort.String()
	}
	return text
}
