package xdp_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
)

// podWith is the lab's pod with a list for what is sent to it.
func podWith(toPod *renderer.RuleList) renderer.PodConfig {
	return renderer.PodConfig{IPs: []netip.Addr{own4, own6}, Egress: toPod}
}

// origin is rule i of a policy.
func origin(policy string, i int) api.Origin {
	return api.Origin{Policy: api.PolicyID{Namespace: "lab", Name: policy}, Rule: i}
}

// webList permits ports from a friend, and has every rule from a policy.
func webList(policy string, ports ...uint16) *renderer.RuleList {
	var rules []api.ContivRule
	var origins [][]api.Origin
	for i, p := range ports {
		rules = append(rules, permitTCP(api.AddrNet(friend4), p, compile.ToPod))
		origins = append(origins, []api.Origin{origin(policy, i)})
	}
	return renderer.NewRuleList(append(rules, api.ContivRule{}), append(origins, []api.Origin{origin(policy, api.IsolationRule)}))
}

func (l *lab) renderList(cfg renderer.PodConfig) {
	l.t.Helper()
	changes := renderer.Changes{Resync: true}
	changes.Render(labPod, cfg)
	if err := l.r.Apply(l.t.Context(), changes); err != nil {
		l.t.Fatal(err)
	}
}

// packets sends so many to a port.
func (l *lab) packets(n int, port uint16) {
	for range n {
		l.send(compile.ToPod, xdp.Frame(tcpFlow(friend4, own4, 4000, port), false))
	}
}

// counts checks the packet counters of rules.
func (l *lab) counts(what string, want map[renderer.CounterKey]uint64) {
	l.t.Helper()
	if got := l.r.Decisions(); !maps.Equal(got, want) {
		l.t.Errorf("%s: hits are %v, want %v", what, got, want)
	}
}

func permitted(o api.Origin) renderer.CounterKey {
	return renderer.CounterKey{Origin: o, Action: api.Permit}
}
func refused(o api.Origin) renderer.CounterKey {
	return renderer.CounterKey{Origin: o, Action: api.Deny}
}

// TestRuleCountersArePerCPU counts permitted and dropped packets on each processor in turn.
func TestRuleCountersArePerCPU(t *testing.T) {
	l := newLab(t)
	l.renderList(podWith(webList("web", 80, 443)))
	want := map[renderer.CounterKey]uint64{}
	drops := uint64(0)
	for n, cpu := range processors(t) {
		runOn(t, cpu)
		for i := range n%3 + 2 {
			l.packets(1, 80)
			l.packets(2, 443)
			l.packets(3, 22)
			want[permitted(origin("web", 0))]++
			want[permitted(origin("web", 1))] += 2
			want[refused(origin("web", api.IsolationRule))] += 3
			drops += 3
			if i == 0 {
				l.counts("as soon as a processor counts", want)
			}
		}
	}
	l.counts("all processors", want)
	if got, err := l.kernel.Drops(); err != nil || got[xdp.ReasonPolicy] != drops {
		t.Errorf("drops are %v and %v, want %d by policy", got, err, drops)
	}
}

// TestRuleCountersOfCPUsLoseNothing that count at the same time.
func TestRuleCountersOfCPUsLoseNothing(t *testing.T) {
	const packets = 50000
	cpus := processors(t)
	if len(cpus) < 2 {
		t.Skip("there is one processor")
	}
	l := newLab(t)
	l.renderList(podWith(webList("web", 80)))
	frame := xdp.Frame(udpFlow(friend4, own4, 4000, 80), false)
	var senders sync.WaitGroup
	for _, cpu := range cpus[:2] {
		senders.Go(func() {
			runOn(t, cpu)
			for range packets {
				if ok, err := l.kernel.Probe(labID, compile.ToPod, frame); ok || err != nil {
					t.Errorf("permitted is %t, %v", ok, err)
					return
				}
			}
		})
	}
	senders.Wait()
	l.counts("both", map[renderer.CounterKey]uint64{refused(origin("web", api.IsolationRule)): 2 * packets})
	if got, err := l.kernel.Drops(); err != nil || got[xdp.ReasonPolicy] != 2*packets {
		t.Errorf("drops are %v and %v, want %d by policy", got, err, 2*packets)
	}
}

// TestRuleCountersFindEveryRunOfList by the program, in lists of few runs, of more, and in nodes:
// at every port and address of a rule, beside it, and at both ends. A rule of its own counts each.
func TestRuleCountersFindEveryRunOfList(t *testing.T) {
	everywhere(t, testRuleCountersFindEveryRunOfList)
}

func testRuleCountersFindEveryRunOfList(t *testing.T, newLab makeLab) {
	l := newLab(t)
	for _, n := range []int{1, 2, 3, 4, 15, 16, 17} {
		for _, end := range []uint16{1, 1000, 65535} {
			var keys []uint16
			for i := range n - 1 {
				keys = append(keys, uint16(3700*(i+1)))
			}
			if keys = append(keys, end); slices.Contains(keys[:n-1], end) {
				continue
			}
			for what, by := range map[string]struct {
				rule func(key uint16) api.ContivRule
				flow func(key uint16) api.Flow
			}{
				"port": {
					func(key uint16) api.ContivRule { return permitTCP(api.AddrNet(friend4), key, compile.ToPod) },
					func(key uint16) api.Flow { return tcpFlow(friend4, own4, 4000, key) },
				},
				"address": {
					func(key uint16) api.ContivRule { return permitTCP(api.AddrNet(inSubnet(key)), 80, compile.ToPod) },
					func(key uint16) api.Flow { return tcpFlow(inSubnet(key), own4, 4000, 80) },
				},
			} {
				l.findsEach(what, keys, by.rule, by.flow)
			}
		}
	}
}

// inSubnet is an address of a network of 16 bits.
func inSubnet(key uint16) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 77, byte(key >> 8), byte(key)})
}

// findsEach has a list with a rule for each key, and sends a packet at each, and on either side.
func (l *lab) findsEach(what string, keys []uint16, rule func(uint16) api.ContivRule, flow func(uint16) api.Flow) {
	l.t.Helper()
	var rules []api.ContivRule
	var origins [][]api.Origin
	for i, key := range keys {
		rules, origins = append(rules, rule(key)), append(origins, []api.Origin{origin(what, i)})
	}
	l.renderList(podWith(renderer.NewRuleList(append(rules, api.ContivRule{}), append(origins, []api.Origin{origin(what, api.IsolationRule)}))))
	want := maps.Clone(l.r.Decisions())
	asked := []uint16{0, 1, 65534, 65535}
	for _, key := range keys {
		asked = append(asked, key-1, key, key+1)
	}
	for _, key := range asked {
		i := slices.Index(keys, key)
		l.want(i >= 0, fmt.Sprintf("%s %d of %v", what, key, keys), compile.ToPod, xdp.Frame(flow(key), false))
		if i >= 0 {
			want[permitted(origin(what, i))]++
		} else {
			want[refused(origin(what, api.IsolationRule))]++
		}
	}
	l.counts(fmt.Sprintf("%ss %v", what, keys), want)
}

func TestHitsAreThoseOfPolicyRules(t *testing.T) { everywhere(t, testHitsAreThoseOfPolicyRules) }

func testHitsAreThoseOfPolicyRules(t *testing.T, newLab makeLab) {
	l := newLab(t)
	l.renderList(podWith(webList("web", 80, 443)))
	l.packets(3, 80)
	l.packets(2, 443)
	l.packets(4, 22)
	want := map[renderer.CounterKey]uint64{permitted(origin("web", 0)): 3, permitted(origin("web", 1)): 2, refused(origin("web", api.IsolationRule)): 4}
	l.counts("one list", want)
	l.counts("asked again", want)
	for i, n := range []uint64{3, 2, 4} {
		if got := l.r.Counters().Tables[0].Packets[i]; got != n {
			t.Errorf("rule %d has %d hits, want %d", i, got, n)
		}
	}

	l.renderList(podWith(webList("shop", 80, 81))) // other rules, which may have the counters of old ones
	l.packets(5, 80)
	want[permitted(origin("shop", 0))] = 5
	l.counts("another list", want)
	for range 5 { // counters are used again
		l.renderList(podWith(webList("web", 80, 443)))
		l.packets(1, 80)
		l.renderList(podWith(webList("shop", 80, 81)))
		l.packets(1, 80)
	}
	want[permitted(origin("web", 0))] += 5
	want[permitted(origin("shop", 0))] += 5
	l.counts("lists that come and go", want)
	if got := l.r.Counters().Tables[0].Packets[0]; got != 1 {
		t.Errorf("the list that is there last has %d hits, want 1", got)
	}
}

// TestHitsCountRepliesToTheirRule, also when their flow is known, and when lists are asked
// again.
func TestHitsCountRepliesToTheirRule(t *testing.T) {
	for _, f := range []api.Flow{tcpFlow(friend4, own4, 4000, 80), tcpFlow(friend6, own6, 4000, 80)} {
		l := newLab(t)
		cfg := podWith(renderer.NewRuleList([]api.ContivRule{permitTCP(api.Net{}, 80, compile.ToPod), {}}, [][]api.Origin{{origin("web", 0)}, {origin("web", api.IsolationRule)}}))
		cfg.Ingress = renderer.NewRuleList([]api.ContivRule{{}}, [][]api.Origin{{origin("closed", api.IsolationRule)}})
		l.renderList(cfg)
		l.want(true, "a flow", compile.ToPod, xdp.Frame(f, false))
		hits := uint64(1)
		for range 3 {
			for range 3 {
				l.want(true, "an answer", compile.FromPod, flags(xdp.Frame(f, true), ack))
				hits++
			}
			l.kernel.SetGeneration(l.kernel.Generation() + 1)
		}
		l.counts(f.Src.String(), map[renderer.CounterKey]uint64{permitted(origin("web", 0)): hits})
	}
}

func TestHitsOutlivePolicyMaps(t *testing.T) {
	l := newLab(t)
	l.renderList(podWith(webList("web", 80)))
	l.packets(3, 80)
	before, _ := l.kernel.Size()
	var rules []api.ContivRule
	var origins [][]api.Origin
	for n := range 30000 { // whose rows take lines
		a := netip.AddrFrom4([4]byte{172, byte(16 + n>>16), byte(n >> 8), byte(n)})
		rules = append(rules, permitTCP(api.AddrNet(a), uint16(1+n), compile.ToPod))
		origins = append(origins, nil)
	}
	rules, origins = append(rules, permitTCP(api.AddrNet(friend4), 80, compile.ToPod)), append(origins, []api.Origin{origin("web", 0)})
	l.renderList(podWith(renderer.NewRuleList(append(rules, api.ContivRule{}), append(origins, nil))))
	if after, _ := l.kernel.Size(); after <= before {
		t.Fatalf("memory has %d lines, as before", after)
	}
	l.packets(2, 80)
	l.packets(1, 81)
	l.counts("after growth", map[renderer.CounterKey]uint64{permitted(origin("web", 0)): 5, refused(api.Origin{}): 1})
}

// counting is a dataplane whose counters a test sets.
type counting struct {
	xdp.Dataplane
	counters []uint64
}

func (c *counting) Hits(first, count uint32) ([]uint64, error) {
	end := min(uint64(first)+uint64(count), uint64(len(c.counters)))
	return slices.Clone(c.counters[first:end]), nil
}

func (c *counting) Switch() ([]uint64, error) {
	left := c.counters
	c.counters = make([]uint64, len(left))
	_, err := c.Dataplane.Switch()
	return left, err
}

// TestCountersAreReused reuses counters without a kernel: every packet is counted once, for the
// rule that had the counter at that time.
func TestCountersAreReused(t *testing.T) {
	c := &counting{Dataplane: xdp.NewHeap(), counters: make([]uint64, 1024)}
	r, err := xdp.New(xdp.Options{Dataplane: c, Interfaces: func(api.PodID, []netip.Addr) []uint32 { return []uint32{labID} }})
	if err != nil {
		t.Fatal(err)
	}
	want := map[renderer.CounterKey]uint64{}
	for i := range 40 {
		policy := []string{"web", "shop", "mail"}[i%3]
		changes := renderer.Changes{Resync: true}
		changes.Render(labPod, podWith(webList(policy, 80, uint16(81+i%3))))
		if err := r.Apply(t.Context(), changes); err != nil {
			t.Fatal(err)
		}
		first := c.Word(c.Record(labID)*compile.LineWords + compile.RecordSlot)
		for rule := range 2 {
			c.counters[int(first)+rule] += uint64(i + 1 + rule)
			want[permitted(origin(policy, rule))] += uint64(i + 1 + rule)
		}
		if i%4 == 0 && !maps.Equal(r.Decisions(), want) {
			t.Fatalf("after %d lists hits are %v, want %v", i+1, r.Decisions(), want)
		}
	}
	if got := r.Decisions(); !maps.Equal(got, want) || !maps.Equal(r.Decisions(), want) {
		t.Errorf("hits are %v, want %v", got, want)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestDropsAreReadDuringClose: metrics are asked for until the process ends.
func TestDropsAreReadDuringClose(t *testing.T) {
	k := newKernel(t, xdp.KernelOptions{Mode: xdp.ModeNone, Flows: 64})
	read := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for i := 0; ; i++ {
			if _, err := k.Drops(); err != nil {
				return // it is closed
			}
			if i == 0 {
				close(read)
			}
		}
	}()
	<-read
	if err := k.Close(); err != nil {
		t.Error(err)
	}
	<-ended
}

// TestCountersMatchTheirTables: while lists come and go, no rule is given the packets of
// another list's.
func TestCountersMatchTheirTables(t *testing.T) {
	l := newLab(t)
	lists := []*renderer.RuleList{webList("web", 80, 443), webList("shop", 8080)}
	l.renderList(podWith(lists[0]))
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			for _, x := range l.r.Counters().Tables {
				if x.Packets == nil {
					continue // the list was replaced meanwhile
				}
				if len(x.Packets) != len(x.Rules) || len(x.CountedWith) != len(x.Rules) {
					t.Errorf("%d rules have %d counters", len(x.Rules), len(x.Packets))
				}
				for i, n := range x.Packets {
					if never := x.Rules[i].DstPort == api.Port(443) || x.Rules[i].Action == api.Deny; never && n > 0 {
						t.Errorf("%d packets are those of rule %d of %s, which decided none", n, i, x.Origins[i])
					}
				}
			}
		}
	}()
	for i := range 60 {
		l.renderList(podWith(lists[i%2]))
		l.packets(5, []uint16{80, 8080}[i%2])
	}
	close(stop)
	<-done
}
