package cluster

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/analysis/explain"
	"github.com/sluice-net/sluice/internal/analysis/explain/reason"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/plugins/ksr/convert"
	"github.com/sluice-net/sluice/tests/lab/cluster"
)

const prefix = "/x"

// stored returns a random cluster as a store holds it, with a service for every other pod.
func stored(t testing.TB, s cluster.State) (entries []model.Entry) {
	add := func(o any) {
		m, ok := o.(proto.Message)
		if !ok {
			m, _ = convert.ToModel(o)
		}
		id, err := model.IDOf(m)
		if err != nil {
			return // it is invalid
		}
		value, err := model.Encode(m)
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, model.Entry{Key: model.Key(prefix, id), Value: value})
	}
	for _, e := range cluster.Objects(s) {
		add(e.Object)
	}
	for i, p := range s.Pods {
		svc := &model.Service{Namespace: p.Namespace, Name: fmt.Sprintf("s%d", i), Addresses: []string{fmt.Sprintf("10.96.0.%d", i)}, Ports: []*model.Service_Port{{Name: "main", Protocol: model.Protocol_PROTOCOL_TCP, Port: 80}}}
		switch i % 4 {
		case 0: // by its selector
			for k, v := range p.Labels {
				svc.Selector = append(svc.Selector, &model.Label{Key: k, Value: v})
			}
			add(svc)
		case 2: // by a slice
			add(svc)
			add(&model.EndpointSlice{Namespace: p.Namespace, Name: svc.Name + "-x", Service: svc.Name, Subsets: []*model.EndpointSlice_Subset{{
				Addresses: []string{p.Status.PodIP}, Ports: []*model.EndpointSlice_Port{{Name: "main", Protocol: model.Protocol_PROTOCOL_TCP, Port: 8080}},
			}}})
		}
	}
	return entries
}

// answers returns what a state says of a question, as one of a cluster of several nodes.
func answers(s State, q view.Question) (out []reason.Verdict, ends []explain.Question, failed string) {
	questions, err := s.Questions(q)
	if err != nil {
		return nil, nil, err.Error()
	}
	state := s.State()
	state.Pods = explain.OnNodes(state.Pods, func(p *corev1.Pod) (string, bool) { return p.Spec.NodeName, p.Spec.NodeName != "" }, nil)
	spec := explain.Specification{Oracle: oracle.New(state, oracle.AllowNodeTraffic(true)), Selectors: s.Selectors()}
	for _, q := range questions {
		out = append(out, spec.Explain(q))
	}
	return out, questions, ""
}

// ends returns the ends to ask about: each pod by its name, address and labels, services by name and
// address, nodes by their addresses, and what is not there.
func ends(s cluster.State) (out []string) {
	for i, p := range s.Pods {
		out = append(out, p.Namespace+"/"+p.Name, p.Status.PodIP, "svc/"+p.Namespace+"/"+fmt.Sprintf("s%d", i), fmt.Sprintf("10.96.0.%d", i))
		for k, v := range p.Labels {
			out = append(out, k+"="+v, p.Namespace+"/"+k+"="+v, k)
		}
		out = append(out, p.Namespace+"/*", "*/"+p.Name, p.Status.HostIP)
	}
	for _, n := range s.Nodes {
		for _, a := range n.Status.Addresses {
			out = append(out, a.Address)
		}
	}
	out = append(out, "nowhere/nobody", "198.51.100.7", "2001:db8::7", "a b c")
	return slices.DeleteFunc(out, func(text string) bool { return text == "" })
}

// TestPartAnswersAsWhole: the part of a cluster that a question is about says the same as the whole.
func TestPartAnswersAsWhole(t *testing.T) {
	for seed := range uint64(12) {
		s := cluster.Random(seed, cluster.Config{Namespaces: 3, Nodes: 3, Pods: 12, Policies: 8, Admin: 3, IPv6: true, SharedAddresses: true})
		entries, all, rand := stored(t, s), ends(s), cluster.NewRand(seed)
		whole := Decode(prefix, sorted(entries))
		for range 40 {
			q := view.Question{Src: all[rand.Below(len(all), "")], Dst: all[rand.Below(len(all), "")], Port: "80", Protocol: api.TCP}
			want, wantEnds, wantErr := answers(whole, q)
			got, gotEnds, gotErr := answers(newPart(prefix, entries).aboutFlows(q.Src, q.Dst), q)
			if wantErr != gotErr || asJSON(t, wantEnds) != asJSON(t, gotEnds) {
				t.Fatalf("seed %d, from %s to %s: got %s, %v, want %s, %v", seed, q.Src, q.Dst, gotErr, gotEnds, wantErr, wantEnds)
			}
			if want, got := asJSON(t, want), asJSON(t, got); want != got {
				t.Fatalf("seed %d, from %s to %s (-whole +part):\n%.3000s", seed, q.Src, q.Dst, cmp.Diff(want, got))
			}
		}
	}
}

func asJSON(t *testing.T, v any) string {
	text, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func sorted(entries []model.Entry) []model.Entry {
	out := slices.Clone(entries)
	slices.SortFunc(out, func(a, b model.Entry) int { return strings.Compare(a.Key, b.Key) })
	return out
}

// TestPartHasSurroundingsOfPods: what other objects say of the pods at both ends belongs to the part.
func TestPartHasSurroundingsOfPods(t *testing.T) {
	var entries []model.Entry
	for _, m := range []proto.Message{
		&model.Pod{Namespace: "a", Name: "x", Ips: []string{"10.0.0.1"}, NodeName: "n1", NodeIps: []string{"192.0.2.1"}},
		&model.Pod{Namespace: "b", Name: "y", Ips: []string{"10.0.0.2"}, NodeName: "n1", NodeIps: []string{"192.0.2.2"}},
		&model.Pod{Namespace: "b", Name: "z", Ips: []string{"10.0.0.3"}, NodeName: "n2", NodeIps: []string{"192.0.2.3"}},
		&model.Pod{Namespace: "b", Name: "done", Phase: model.Pod_PHASE_FAILED, NodeName: "n1", NodeIps: []string{"192.0.2.4"}},
		&model.Service{Namespace: "a", Name: "sa"}, &model.Service{Namespace: "b", Name: "sb"},
		&model.Node{Name: "n1"}, &model.Node{Name: "n2"}, &model.Node{Name: "n3", Addresses: []string{"192.0.2.9"}}, &model.Node{Name: "n4"},
	} {
		id, err := model.IDOf(m)
		if err != nil {
			t.Fatal(err)
		}
		value, err := model.Encode(m)
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, model.Entry{Key: model.Key(prefix, id), Value: value})
	}
	s := newPart(prefix, entries).aboutFlows("a/x", "192.0.2.9")
	var got []string
	for _, n := range s.Nodes {
		got = append(got, n.GetName())
	}
	for _, svc := range s.Services {
		got = append(got, svc.GetName())
	}
	for _, p := range s.Pods {
		got = append(got, p.GetName(), strings.Join(p.GetNodeIps(), ","))
	}
	if diff := cmp.Diff([]string{"n1", "n3", "sa", "x", "192.0.2.1,192.0.2.2"}, got); diff != "" {
		t.Errorf("the part (-want +got):\n%s", diff)
	}
}
