package policy

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/renderertest"
)

// TestPluginStateDependsOnClusterOnly passes random changes to a renderer that fails now and then,
// in batches, with resyncs in between, and compares with a plugin that receives the last state at
// once. The Recorder reports violations of the contract by the layers.
func TestPluginStateDependsOnClusterOnly(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p, r := rapidPlugin(rt)
		defer closePlugin(rt, p)
		state := map[model.ID]proto.Message{}
		for i := range rapid.IntRange(1, 8).Draw(rt, "batches") {
			var batch []model.Delta
			for range rapid.IntRange(0, 6).Draw(rt, "changes") {
				d := drawDelta(rt)
				if state[d.ID] = d.Value; d.Value == nil {
					delete(state, d.ID)
				}
				batch = append(batch, d)
			}
			ch := model.Changes{Deltas: newest(batch)}
			if i == 0 || rapid.IntRange(0, 4).Draw(rt, "resync when 0") == 0 {
				ch = whole(state)
			}
			if rapid.Bool().Draw(rt, "fail") {
				r.FailNext(renderertest.FailBefore)
			}
			if err := p.Apply(context.Background(), ch); err != nil {
				rt.Fatal(err)
			}
		}
		fresh, want := rapidPlugin(rt)
		defer closePlugin(rt, fresh)
		if err := fresh.Apply(context.Background(), whole(state)); err != nil {
			rt.Fatal(err)
		}
		if diff := cmp.Diff(want.Dump(), r.Dump()); diff != "" {
			rt.Fatal(diff)
		}
		if diff := cmp.Diff(problemsOfAll(rt, fresh), problemsOfAll(rt, p)); diff != "" {
			rt.Fatal("problems depend on history: ", diff)
		}
	})
}

// problemsOfAll returns everything that a plugin reports about problems.
func problemsOfAll(t *rapid.T, p *Plugin) []any {
	s, err := p.Snapshot(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	all := []any{s.Problems, s.Status.Problems, s.Status.Unenforced}
	for _, policy := range s.Policies {
		all = append(all, policy.ID, policy.Problems, policy.Notes)
	}
	for _, pod := range s.Pods {
		all = append(all, pod.ID, pod.Problems)
	}
	if broken := p.loop.engine.problems.inconsistent(); broken != "" {
		t.Fatal(broken)
	}
	return all
}

// inconsistent returns the wrong counts of a problemTracker.
func (t *problemTracker) inconsistent() string {
	classes, policies := map[api.Class]int{}, map[string]bool{}
	for problem := range t.present {
		if strings.HasPrefix(problem.Object, "NetworkPolicy ") {
			policies[problem.Object] = true
			classes[problem.Class]++
		}
	}
	if !maps.Equal(classes, t.classes) || len(policies) != len(t.policies) || len(t.changed) > 0 {
		return fmt.Sprintf("problems %+v", *t)
	}
	return ""
}

func rapidPlugin(t *rapid.T) (*Plugin, *renderertest.Recorder) {
	r := renderertest.NewRecorder("one", t)
	p := New(Deps{Node: node, Renderers: []renderer.Renderer{r}, MinBackoff: 1})
	if err := p.Init(); err != nil {
		t.Fatal(err)
	}
	if err := p.AfterInit(); err != nil {
		t.Fatal(err)
	}
	return p, r
}

func closePlugin(t *rapid.T, p *Plugin) {
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// newest keeps the last delta of every object, as a Source does.
func newest(deltas []model.Delta) (kept []model.Delta) {
	for i, d := range deltas {
		last := true
		for _, later := range deltas[i+1:] {
			last = last && later.ID != d.ID
		}
		if last {
			kept = append(kept, d)
		}
	}
	return kept
}

func whole(state map[model.ID]proto.Message) model.Changes {
	ch := model.Changes{Resync: true}
	for id, value := range state {
		ch.Deltas = append(ch.Deltas, model.Delta{ID: id, Value: value})
	}
	return ch
}

// drawDelta puts or deletes a random object of a small cluster.
func drawDelta(t *rapid.T) model.Delta {
	var object proto.Message
	app := rapid.SampledFrom([]string{"web", "front", "other"})
	switch rapid.IntRange(0, 6).Draw(t, "kind") {
	case 0:
		object = ns()
	case 1, 2, 3:
		p := pod(rapid.IntRange(0, 5).Draw(t, "pod"), app.Draw(t, "app"), rapid.Bool().Draw(t, "local"))
		if rapid.IntRange(0, 9).Draw(t, "bad address when 0") == 0 {
			p.Ips = append(p.Ips, "10.1")
		}
		object = named(p, rapid.SampledFrom([][]string{nil, {"http"}, {"http", "admin"}}).Draw(t, "names")...)
	default:
		name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "policy")
		policy := allow(name, app.Draw(t, "from"), app.Draw(t, "to"), uint32(rapid.IntRange(80, 82).Draw(t, "port")))
		if rapid.Bool().Draw(t, "blocks") {
			policy.Ingress[0].Peers = append(policy.Ingress[0].Peers, &model.NetworkPolicy_Peer{IpBlock: ipBlock("198.51.100.0/24", "198.51.100.7/32")})
		}
		if rapid.Bool().Draw(t, "named") {
			policy.Ingress[0].Ports[0].Port = &model.NetworkPolicy_Port_Name{Name: rapid.SampledFrom([]string{"http", "admin", "none"}).Draw(t, "name")}
		}
		if rapid.IntRange(0, 3).Draw(t, "bad peer when 0") == 0 {
			policy.Ingress[0].Peers = append(policy.Ingress[0].Peers, &model.NetworkPolicy_Peer{})
		}
		if policy.IsolatesEgress = rapid.Bool().Draw(t, "egress"); policy.IsolatesEgress {
			policy.Egress = policy.Ingress
		}
		object = policy
	}
	id, err := model.IDOf(object)
	if err != nil {
		t.Fatal(err)
	}
	if rapid.IntRange(0, 3).Draw(t, "delete when 0") == 0 {
		object = nil
	}
	return model.Delta{ID: id, Value: object}
}
