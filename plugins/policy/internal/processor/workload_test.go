package processor_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/sluice-net/sluice/api/model"
)

// The workload directory holds Kubernetes objects as JSON lines (init.jsonl), one
// object per line, events ({"op","tag","object"}, events.jsonl) and ground truth
// (stats.json). Set SLUICE_WORKLOAD to it.
const workloadEnv = "SLUICE_WORKLOAD"

func workloadDir(tb testing.TB) string {
	dir := os.Getenv(workloadEnv)
	if dir == "" {
		tb.Skipf("%s is not set", workloadEnv)
	}
	return dir
}

type jsonSelector struct {
	MatchLabels      map[string]string
	MatchExpressions []struct {
		Key, Operator string
		Values        []string
	}
}

type jsonRule struct {
	From, To []struct {
		PodSelector, NamespaceSelector *jsonSelector
		IPBlock                        *struct {
			CIDR   string
			Except []string
		}
	}
	Ports []struct {
		Protocol string
		Port     any
		EndPort  uint32
	}
}

type jsonObject struct {
	Kind     string
	Metadata struct {
		Name, Namespace string
		Labels          map[string]string
	}
	Spec struct {
		NodeName   string
		Containers []struct {
			Ports []struct {
				Name, Protocol string
				ContainerPort  uint32
			}
		}
		PodSelector     jsonSelector
		PolicyTypes     []string
		Ingress, Egress []jsonRule
	}
	Status struct {
		Phase  string
		PodIPs []struct{ IP string }
	}
}

type event struct {
	tag   string
	delta model.Delta
}

func readLines(tb testing.TB, file string, f func([]byte)) {
	tb.Helper()
	r, err := os.Open(file)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	s := bufio.NewScanner(r)
	s.Buffer(nil, 64<<20)
	for s.Scan() {
		f(s.Bytes())
	}
	if err := s.Err(); err != nil {
		tb.Fatal(err)
	}
}

func readState(tb testing.TB, dir string) model.Changes {
	tb.Helper()
	ch := model.Changes{Resync: true}
	readLines(tb, filepath.Join(dir, "init.jsonl"), func(line []byte) {
		var o jsonObject
		if err := json.Unmarshal(line, &o); err != nil {
			tb.Fatal(err)
		}
		if m := o.message(); m != nil {
			ch.Deltas = append(ch.Deltas, model.Delta{ID: mustID(tb, m), Value: m})
		}
	})
	return ch
}

func readEvents(tb testing.TB, dir string) (events []event) {
	tb.Helper()
	readLines(tb, filepath.Join(dir, "events.jsonl"), func(line []byte) {
		var e struct {
			Op, Tag string
			Object  jsonObject
		}
		if err := json.Unmarshal(line, &e); err != nil {
			tb.Fatal(err)
		}
		m := e.Object.message()
		d := model.Delta{ID: mustID(tb, m)}
		if e.Op != "delete" {
			d.Value = m
		}
		events = append(events, event{e.Tag, d})
	})
	return events
}

func readStats(tb testing.TB, dir string) (stats struct{ Pods, AppliedPairs, PeerPairsUnique, MaxPeerSet, UniquePeerSel int }) {
	tb.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "stats.json"))
	if err == nil {
		err = json.Unmarshal(b, &stats)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return stats
}

func (o *jsonObject) message() proto.Message {
	switch o.Kind {
	case "Namespace":
		return &model.Namespace{Name: o.Metadata.Name, Labels: mapLabels(o.Metadata.Labels)}
	case "Pod":
		return o.pod()
	case "NetworkPolicy":
		return o.policy()
	}
	return nil
}

func mapLabels(m map[string]string) (out []*model.Label) {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, &model.Label{Key: k, Value: m[k]})
	}
	return out
}

func (o *jsonObject) pod() *model.Pod {
	p := &model.Pod{
		Namespace: o.Metadata.Namespace, Name: o.Metadata.Name, Labels: mapLabels(o.Metadata.Labels),
		NodeName: o.Spec.NodeName, Phase: model.Pod_Phase(model.Pod_Phase_value["PHASE_"+strings.ToUpper(o.Status.Phase)]),
	}
	if n, ok := strings.CutPrefix(o.Spec.NodeName, "node-"); ok {
		i, _ := strconv.Atoi(n)
		p.NodeIps = []string{fmt.Sprintf("192.168.%d.%d", i/250, i%250+1)}
	}
	for _, ip := range o.Status.PodIPs {
		p.Ips = append(p.Ips, ip.IP)
	}
	for _, c := range o.Spec.Containers {
		for _, port := range c.Ports {
			p.NamedPorts = append(p.NamedPorts, &model.Pod_NamedPort{Name: port.Name, Protocol: protocols[strings.ToLower(port.Protocol)], Port: port.ContainerPort})
		}
	}
	slices.SortFunc(p.NamedPorts, func(a, b *model.Pod_NamedPort) int { return strings.Compare(a.Name, b.Name) })
	return p
}

func (s *jsonSelector) message() *model.LabelSelector {
	if s == nil {
		return nil
	}
	out := &model.LabelSelector{MatchLabels: mapLabels(s.MatchLabels)}
	ops := map[string]model.LabelSelector_Operator{"In": 1, "NotIn": 2, "Exists": 3, "DoesNotExist": 4}
	for _, r := range s.MatchExpressions {
		slices.Sort(r.Values)
		out.MatchExpressions = append(out.MatchExpressions, &model.LabelSelector_Requirement{Key: r.Key, Operator: ops[r.Operator], Values: r.Values})
	}
	return out
}

func (o *jsonObject) policy() *model.NetworkPolicy {
	return &model.NetworkPolicy{
		Namespace: o.Metadata.Namespace, Name: o.Metadata.Name, PodSelector: o.Spec.PodSelector.message(),
		IsolatesIngress: slices.Contains(o.Spec.PolicyTypes, "Ingress"),
		IsolatesEgress:  slices.Contains(o.Spec.PolicyTypes, "Egress"),
		Ingress:         ruleMessages(o.Spec.Ingress),
		Egress:          ruleMessages(o.Spec.Egress),
	}
}

func ruleMessages(rules []jsonRule) (out []*model.NetworkPolicy_Rule) {
	for _, r := range rules {
		m := &model.NetworkPolicy_Rule{}
		for _, p := range append(r.From, r.To...) {
			pm := &model.NetworkPolicy_Peer{PodSelector: p.PodSelector.message(), NamespaceSelector: p.NamespaceSelector.message()}
			if p.IPBlock != nil {
				pm.IpBlock = &model.NetworkPolicy_IPBlock{Cidr: p.IPBlock.CIDR, Except: p.IPBlock.Except}
			}
			m.Peers = append(m.Peers, pm)
		}
		for _, p := range r.Ports {
			pm := &model.NetworkPolicy_Port{Protocol: protocols[strings.ToLower(p.Protocol)], EndPort: p.EndPort}
			switch v := p.Port.(type) {
			case string:
				pm.Port = &model.NetworkPolicy_Port_Name{Name: v}
			case float64:
				pm.Port = &model.NetworkPolicy_Port_Number{Number: uint32(math.Round(v))}
			}
			m.Ports = append(m.Ports, pm)
		}
		out = append(out, m)
	}
	return out
}

// synthetic returns a cluster with 100 pods per namespace, of which the first
// local ones are on node n0, and policies of the form "app from role, TCP port".
func synthetic(nPods, policies, local int) []proto.Message {
	var out []proto.Message
	for i := range max(1, nPods/100) {
		out = append(out, ns(fmt.Sprintf("ns%d", i), fmt.Sprintf("team=t%d", i%10)))
	}
	for i := range nPods {
		out = append(out, syntheticPod(i, local))
	}
	n := max(1, nPods/100)
	for i := range policies {
		id := fmt.Sprintf("ns%d/p%d", i%n, i)
		out = append(out, ingress(id, sel(fmt.Sprintf("app=a%d", i/n%10)),
			rule(peers(pods(fmt.Sprintf("role=r%d", i/n%5))), fmt.Sprintf("tcp/%d", 1000+i%1000))))
	}
	return out
}

func syntheticPod(i, local int) *model.Pod {
	node := 0
	if i >= local {
		node = 1 + i%100
	}
	p := pod(fmt.Sprintf("ns%d/pod%d", i/100, i), fmt.Sprintf("app=a%d role=r%d", i%10, i/10%5), fmt.Sprintf("10.%d.%d.%d", i/62500, i/250%250, i%250+1))
	p.NodeName, p.NodeIps = fmt.Sprintf("n%d", node), []string{fmt.Sprintf("192.168.0.%d", node+1)}
	return p
}
