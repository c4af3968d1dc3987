package renderertest

import (
	"context"
	"io"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// flowsPerStep is the number of random flows that are checked after a step.
const flowsPerStep = 150

// runRandom applies random transactions, some of which fail, to new subjects.
func runRandom(t *testing.T, factory Factory) {
	rapid.Check(t, func(rt *rapid.T) {
		subject := factory(t)
		if c, ok := subject.(io.Closer); ok {
			defer func() {
				if err := c.Close(); err != nil {
					rt.Errorf("close the subject: %v", err)
				}
			}()
		}
		w := &walk{rig: newRig(rt, subject), rt: rt, pods: map[int]renderer.PodConfig{}, sets: map[api.SetID][]netip.Prefix{}}
		for range rapid.IntRange(1, 8).Draw(rt, "steps") {
			w.step()
		}
		w.compare(func() Subject { return factory(t) })
	})
}

// walk is a random sequence of transactions and the resulting state.
type walk struct {
	*rig
	rt   *rapid.T
	pods map[int]renderer.PodConfig
	sets map[api.SetID][]netip.Prefix
}

// step applies one change, retries it until it succeeds, and checks some flows.
func (w *walk) step() {
	flows := w.drawFlows()
	states := [][]Ends{w.verdicts(flows)}
	changes := w.begin(w.drawChanges())
	failure := rapid.IntRange(0, 12).Draw(w.rt, "failing call, 0 for none")
	w.subject.FailNext(failure)
	err := w.try(changes)
	w.subject.FailNext(0)
	states = append(states, w.verdicts(flows))
	if err != nil && failure == 0 {
		w.t.Fatalf("apply: %v", err)
	}
	if err != nil {
		w.checkBetween(flows, states...)
		w.applyAll(w.begin(false, nothing))
	}
	w.checkFlows(flows)
	if n := w.operations(func() { w.applyAll(w.begin(true, w.everything())) }); n != 0 {
		w.t.Fatalf("a resync of the same state took %d operations, want 0", n)
	}
}

// compare checks that an inspectable subject holds the same as a new one that gets the same state
// at once.
func (w *walk) compare(newSubject func() Subject) {
	if _, ok := w.subject.(Inspector); !ok {
		return
	}
	fresh := newSubject()
	defer func() {
		if err := shut(fresh); err != nil {
			w.rt.Errorf("close the new subject: %v", err)
		}
	}()
	whole := renderer.Changes{Resync: true}
	w.everything()(&whole)
	if err := fresh.Renderer().Apply(context.Background(), whole); err != nil {
		w.t.Fatalf("apply everything: %v", err)
	}
	want, err := fresh.(Inspector).Installed()
	if err != nil {
		w.t.Fatalf("look into a new subject: %v", err)
	}
	for _, f := range inspect(w.subject, expected{installed: want}) {
		w.t.Fatalf("check %s: %s", f.check, f.text)
	}
}

func (w *walk) drawFlows() []api.Flow {
	index := rapid.IntRange(0, len(allFlows)-1)
	flows := make([]api.Flow, flowsPerStep)
	// One random number spread over all flows is as good as many, and shrinks faster.
	start, stride := index.Draw(w.rt, "first flow"), 2*index.Draw(w.rt, "stride")+1
	for i := range flows {
		flows[i] = allFlows[(start+i*stride)%len(allFlows)]
	}
	return flows
}

// drawChanges returns a random change of the state, or a resync to a changed state.
func (w *walk) drawChanges() (resync bool, c change) {
	resync = rapid.IntRange(0, 5).Draw(w.rt, "resync when 0") == 0
	var changes []change
	for range rapid.IntRange(0, 4).Draw(w.rt, "pods changed") {
		changes = append(changes, w.drawPod())
	}
	for _, id := range []api.SetID{frontends, backends, blocks} {
		if rapid.Bool().Draw(w.rt, "change the set") {
			changes = append(changes, w.drawMembers(id))
		}
	}
	if resync {
		return true, w.everything()
	}
	return false, all(changes...)
}

// everything sends the whole state, as in a resync.
func (w *walk) everything() change {
	var changes []change
	for _, pod := range slices.Sorted(maps.Keys(w.pods)) {
		cfg := w.pods[pod]
		changes = append(changes, renderAt(pod, cfg.IPs, cfg.Ingress, cfg.Egress))
	}
	for _, id := range slices.Sorted(maps.Keys(w.sets)) {
		changes = append(changes, update(id, w.sets[id], nil))
	}
	return all(changes...)
}

func (w *walk) drawPod() change {
	pod := rapid.IntRange(0, len(PodIDs)-1).Draw(w.rt, "pod")
	if rapid.IntRange(0, 4).Draw(w.rt, "remove when 0") == 0 {
		delete(w.pods, pod)
		return remove(pod)
	}
	var ips []netip.Addr
	for n := range addressesPerPod {
		ips = append(ips, v4(pod, n), v6(pod, n))
	}
	ips = rapid.SliceOfNDistinct(rapid.SampledFrom(ips), 1, 3, rapid.ID).Draw(w.rt, "addresses")
	slices.SortFunc(ips, netip.Addr.Compare)
	cfg := renderer.PodConfig{IPs: ips, Ingress: w.drawList(to), Egress: w.drawList(from)}
	w.pods[pod] = cfg
	return renderAt(pod, cfg.IPs, cfg.Ingress, cfg.Egress)
}

// drawMembers changes a set to random members that do not overlap.
func (w *walk) drawMembers(id api.SetID) change {
	universe := hosts(outside...)
	for pod := range PodIDs {
		if id == blocks { // the second address is in the prefix next to the first
			universe = append(universe, netip.PrefixFrom(v4(pod, 0), 24).Masked(), netip.PrefixFrom(v6(pod, 0), 64).Masked())
			continue
		}
		universe = append(universe, hosts(v4(pod, 0), v4(pod, 1), v6(pod, 0), v6(pod, 1))...)
	}
	members := rapid.SliceOfNDistinct(rapid.SampledFrom(universe), 0, 8, rapid.ID).Draw(w.rt, "members")
	old := w.sets[id]
	if w.sets[id] = members; len(members) == 0 {
		delete(w.sets, id)
	}
	return update(id, without(members, old), without(old, members))
}

func without(a, b []netip.Prefix) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(a), func(p netip.Prefix) bool { return slices.Contains(b, p) })
}

// drawList returns nil or a random list of rules made by rule.
func (w *walk) drawList(rule func(api.Action, api.Net, api.Protocol, api.PortRange) api.ContivRule) *renderer.RuleList {
	if rapid.IntRange(0, 2).Draw(w.rt, "open when 0") == 0 {
		return nil
	}
	var rules []api.ContivRule
	for range rapid.IntRange(0, 5).Draw(w.rt, "rules") {
		protocol := rapid.SampledFrom([]api.Protocol{api.AnyProtocol, api.TCP, api.TCP, api.TCP, api.UDP, api.SCTP, api.ICMP}).Draw(w.rt, "protocol")
		ports := api.AnyPort
		if protocol.HasPorts() {
			ports = rapid.SampledFrom([]api.PortRange{api.AnyPort, api.Port(80), api.Port(443), api.Ports(80, 443), api.Ports(8000, 8010), api.Ports(1024, 65535)}).Draw(w.rt, "ports")
		}
		rules = append(rules, rule(w.drawAction(), w.drawNet(), protocol, ports))
	}
	return list(append(rules, api.ContivRule{Action: w.drawAction()})...)
}

// drawAction prefers early permits, as in policies, but generates both actions.
func (w *walk) drawAction() api.Action {
	return rapid.SampledFrom([]api.Action{api.Permit, api.Deny, api.Permit}).Draw(w.rt, "action")
}

func (w *walk) drawNet() api.Net {
	pod := rapid.IntRange(0, len(PodIDs)-1).Draw(w.rt, "peer")
	nets := []api.Net{
		anyNet, api.SetNet(frontends), api.SetNet(backends), api.SetNet(blocks), cidr("10.1.0.0/16"), cidr("10.1.0.0/22"), cidr("0.0.0.0/0"), cidr("::/0"),
		cidr("fd00::/16"), cidr("198.51.100.0/24"), api.AddrNet(v4(pod, 0)), api.AddrNet(v6(pod, 0)), api.PrefixNet(netip.PrefixFrom(v4(pod, 0), 24)),
	}
	return rapid.SampledFrom(nets).Draw(w.rt, "net")
}
