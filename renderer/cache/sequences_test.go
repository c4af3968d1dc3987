package cache_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/cache"
	"github.com/sluice-net/sluice/renderer/renderertest"
)

var errInjected = errors.New("injected failure")

// planDataplane is a dataplane made only of the plans of a cache, and of the members of the sets
// that the plans name.
type planDataplane struct {
	orientation api.Direction
	cache       *cache.Cache
	configs     map[api.PodID]renderer.PodConfig // staged
	addrs       map[netip.Addr][]api.PodID       // acknowledged

	tables map[renderer.Digest]*cache.Table
	pods   map[api.PodID]renderer.Digest
	global *cache.Table
	sets   map[api.SetID][]netip.Prefix

	operations, failAt int
}

var (
	_ renderertest.Inspector = (*planDataplane)(nil)
	_ renderer.Renderer      = (*planDataplane)(nil)
)

func newStack(orientation api.Direction) *planDataplane {
	return &planDataplane{
		orientation: orientation, cache: cache.New(orientation), configs: map[api.PodID]renderer.PodConfig{},
		tables: map[renderer.Digest]*cache.Table{}, pods: map[api.PodID]renderer.Digest{}, sets: map[api.SetID][]netip.Prefix{},
	}
}

// TestPlansSufficeForDataplane runs the conformance suite of renderers on a dataplane that applies
// the plans of a cache.
func TestPlansSufficeForDataplane(t *testing.T) {
	for _, orientation := range []api.Direction{api.Egress, api.Ingress} {
		t.Run(orientation.String(), func(t *testing.T) {
			renderertest.Run(t, func(testing.TB) renderertest.Subject { return newStack(orientation) })
		})
	}
}

func (s *planDataplane) Name() string                { return "plans" }
func (s *planDataplane) Renderer() renderer.Renderer { return s }
func (s *planDataplane) Operations() int             { return s.operations }
func (s *planDataplane) FailNext(n int)              { s.failAt = n }

// Apply implements renderer.Renderer.
func (s *planDataplane) Apply(ctx context.Context, c renderer.Changes) error {
	if c.Resync {
		clear(s.configs)
	}
	for pod, cfg := range c.Pods {
		if cfg == nil {
			delete(s.configs, pod)
		} else {
			s.configs[pod] = *cfg
		}
	}
	cache.Stage(s.cache, c)
	return s.install(ctx)
}

// install applies a plan as a whole, or fails and applies nothing.
func (s *planDataplane) install(ctx context.Context) error {
	p := s.cache.Compute()
	if !p.Empty() {
		if s.failAt > 0 {
			if s.failAt--; s.failAt == 0 {
				return errInjected
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		s.apply(p)
	}
	s.cache.Acknowledge()
	s.addrs = map[netip.Addr][]api.PodID{}
	for pod, cfg := range s.configs {
		for _, ip := range cfg.IPs {
			s.addrs[ip] = append(s.addrs[ip], pod)
		}
	}
	return nil
}

func (s *planDataplane) apply(p cache.Plan) {
	for _, t := range p.Added {
		s.put(t)
	}
	for _, r := range p.Replaced {
		delete(s.tables, r.Old.Digest)
		s.put(r.New)
	}
	for _, b := range p.Bindings {
		if s.pods[b.Pod] = digest(b.To); b.To == nil {
			delete(s.pods, b.Pod)
		}
	}
	for _, t := range p.Removed {
		delete(s.tables, t.Digest)
	}
	s.operations += len(p.Added) + len(p.Replaced) + len(p.Removed) + len(p.Bindings) + len(p.Sets)
	if s.global = p.Global.To; p.Global.From != p.Global.To {
		s.operations++
		s.look(p.Global.To)
	}
	for _, id := range p.Sets {
		f := s.cache.Aggregated(id)
		s.sets[id] = slices.Concat(f[:]...)
	}
}

func digest(t *cache.Table) renderer.Digest {
	if t == nil {
		return renderer.Digest{}
	}
	return t.Digest
}

func (s *planDataplane) put(t *cache.Table) {
	s.tables[t.Digest] = t
	s.look(t)
}

// look reads the members of the sets that a table names, as a renderer does when it writes the
// table.
func (s *planDataplane) look(t *cache.Table) {
	if t == nil {
		return
	}
	for _, id := range t.Sets {
		f := s.cache.Aggregated(id)
		s.sets[id] = slices.Concat(f[:]...)
	}
}

// Verdict asks the table of the pod at the near end, or the global table.
func (s *planDataplane) Verdict(f api.Flow) api.Action {
	near := f.Dst
	if s.orientation == api.Ingress {
		near = f.Src
	}
	owners := s.addrs[near]
	if len(owners) == 0 {
		return s.decide(s.global, f)
	}
	for _, pod := range owners {
		if s.decide(s.tables[s.pods[pod]], f) == api.Deny {
			return api.Deny
		}
	}
	return api.Permit
}

func (s *planDataplane) decide(t *cache.Table, f api.Flow) api.Action {
	if t == nil {
		return api.Permit
	}
	for _, r := range t.Rules {
		if r.Matches(f, s.inSet) {
			return r.Action
		}
	}
	return api.Deny
}

func (s *planDataplane) inSet(id api.SetID, a netip.Addr) bool {
	return slices.ContainsFunc(s.sets[id], func(p netip.Prefix) bool { return p.Contains(a) })
}

// Installed prints the tables with their pods and the members of their sets. Origins decide no
// packet, but they are a function of the state as well.
func (s *planDataplane) Installed() (string, error) {
	if installed := s.cache.Installed(); len(installed.Tables) != len(s.tables) || digest(installed.Global) != digest(s.global) {
		return "", errors.New("what the cache says is acknowledged is not what its plans made")
	}
	var b strings.Builder
	tables := slices.SortedFunc(maps.Values(s.tables), func(a, b *cache.Table) int { return cmp.Compare(a.Name(), b.Name()) })
	for _, t := range append(tables, s.global) {
		if t == nil {
			continue
		}
		text, err := json.Marshal(t.Rules)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "%s parts %v %s\n", t.Name(), t.Parts, text)
		for _, id := range t.Sets {
			fmt.Fprintf(&b, "  set %s %v\n", id, s.sets[id])
		}
	}
	for _, pod := range slices.SortedFunc(maps.Keys(s.pods), api.PodID.Compare) {
		fmt.Fprintf(&b, "%s has %s\n", pod, s.pods[pod])
	}
	return b.String(), nil
}

// Dangling returns the tables without a pod, and the pods whose table does not exist.
func (s *planDataplane) Dangling() []string {
	var out []string
	used := map[renderer.Digest]bool{}
	for pod, d := range s.pods {
		if used[d] = true; s.tables[d] == nil {
			out = append(out, fmt.Sprintf("pod %s has table %s, which is gone", pod, d))
		}
	}
	for d := range s.tables {
		if !used[d] {
			out = append(out, fmt.Sprintf("table %s is of no pod", d))
		}
	}
	return out
}
