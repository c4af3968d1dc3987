package xdp_test

import (
	"errors"
	"math"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/renderertest"
	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
	"github.com/sluice-net/sluice/tests/lab/wires"
)

// TestSwapsUnderLoad changes lists and sets all the time, while packets are judged that all
// policies permit, or that all deny.
func TestSwapsUnderLoad(t *testing.T) { everywhere(t, testSwapsUnderLoad) }

func testSwapsUnderLoad(t *testing.T, newLab makeLab) {
	l := newLab(t)
	set := api.NewSetID("load")
	web := func(ports ...uint16) (out []api.ContivRule) {
		for _, p := range ports {
			out = append(out, permitTCP(api.SetNet(set), p, compile.ToPod))
		}
		return out
	}
	txn := renderer.Changes{}
	txn.UpdateSet(set, []netip.Prefix{netip.PrefixFrom(friend4, 32), netip.PrefixFrom(friend6, 128)}, nil)
	if err := l.r.Apply(t.Context(), txn); err != nil {
		t.Fatal(err)
	}
	keep := func(rules []api.ContivRule) {
		txn := renderer.Changes{}
		txn.Render(labPod, renderer.PodConfig{IPs: []netip.Addr{own4, own6}, Egress: renderer.NewRuleList(append(rules, api.ContivRule{}), nil)})
		if err := l.r.Apply(t.Context(), txn); err != nil {
			t.Error(err)
		}
	}
	keep(web(80))
	stop, judged, wrong := judge(t, l)
	for i := range 300 {
		switch i % 4 {
		case 0:
			keep(web(80, uint16(1000+i)))
		case 1:
			keep(web(uint16(2000+i), 80))
		default:
			n := netip.AddrFrom4([4]byte{10, 0, 9, byte(10 + i%200)})
			if i%3 == 0 {
				n = netip.AddrFrom4([4]byte{10, 0, byte(i), 1})
			}
			txn := renderer.Changes{}
			txn.UpdateSet(set, []netip.Prefix{netip.PrefixFrom(n, 32)}, nil)
			if i%8 == 7 {
				keep(web(80))
			}
			if err := l.r.Apply(t.Context(), txn); err != nil {
				t.Error(err)
			}
		}
	}
	stop()
	if n := wrong.Load(); n != 0 {
		t.Errorf("%d of %d packets got a wrong verdict", n, judged.Load())
	}
	t.Logf("300 changes during %d packets, none wrong", judged.Load())
}

// judge sends packets whose verdict never changes, until stop is called. The policy map may be
// written and released meanwhile.
func judge(t *testing.T, l *lab) (stop func(), judged, wrong *atomic.Int64) {
	judged, wrong = &atomic.Int64{}, &atomic.Int64{}
	ended := make(chan struct{})
	var all sync.WaitGroup
	for _, c := range []struct {
		frame []byte
		want  bool
	}{
		{xdp.Frame(tcpFlow(friend4, own4, 1, 80), false), true}, {xdp.Frame(tcpFlow(friend6, own6, 1, 80), false), true},
		{xdp.Frame(tcpFlow(friend4, own4, 1, 81), false), false}, {xdp.Frame(tcpFlow(other4, own4, 1, 80), false), false},
	} {
		all.Go(func() {
			for {
				select {
				case <-ended:
					return
				default:
				}
				got, err := l.plane.Probe(labID, compile.ToPod, c.frame)
				if err != nil {
					t.Error(err)
					return
				}
				judged.Add(1)
				if got != c.want {
					wrong.Add(1)
				}
			}
		})
	}
	return func() { close(ended); all.Wait() }, judged, wrong
}

// TestPolicyMapGrowsWithoutLosingPackets grows sets until the policy map is replaced.
func TestPolicyMapGrowsWithoutLosingPackets(t *testing.T) {
	t.Parallel()
	w := newWired(t, xdp.ModeAuto, xdp.KernelOptions{}, "a", "b", "c")
	w.Serve("b", 80)
	policies := map[string]policy{"b": {toPod: w.rules("a", api.TCP, api.Port(80)), fromPod: closed}}
	w.apply(policies)
	talk := w.Open("a", "b", 4, 80)
	denied := w.Send("c", "b", 4, 80, false)
	before, _ := w.kernel.Size()
	for i := range 3 {
		rules := w.rules("a", api.TCP, api.Port(80))
		for n := range 6000 * (i + 1) {
			a := netip.AddrFrom4([4]byte{172, byte(16 + n>>16), byte(n >> 8), byte(n)})
			rules = append(rules, api.ContivRule{Action: api.Permit, Src: api.AddrNet(a), Protocol: api.TCP, DstPort: api.Port(uint16(1 + n%60000))})
		}
		w.apply(map[string]policy{"b": {toPod: rules, fromPod: closed}})
		talk.GoesOn("memory that grew")
	}
	denied.Stop()
	after, _ := w.kernel.Size()
	if n := denied.Wrong.Load(); n != 0 || after <= before {
		t.Errorf("%d packets got through that no policy allows; memory grew from %d to %d lines", n, before, after)
	}
}

// TestCommitClosesRulesThatDoNotFit, until the policy is smaller.
func TestCommitClosesRulesThatDoNotFit(t *testing.T) {
	l := newLab(t, func(o *labOptions) { o.options.MaxLines = 1 << 15 })
	origin := []api.Origin{{Policy: api.PolicyID{Namespace: "lab", Name: "large"}}}
	small := []api.ContivRule{permitTCP(api.AddrNet(friend4), 80, compile.ToPod)}
	l.render(small, nil)
	large := []api.ContivRule{permitTCP(api.AddrNet(other4), 80, compile.ToPod)}
	origins := [][]api.Origin{origin}
	for n := range 40000 {
		a := netip.AddrFrom4([4]byte{172, byte(16 + n>>16), byte(n >> 8), byte(n)})
		large = append(large, api.ContivRule{Action: api.Permit, Src: api.AddrNet(a), Protocol: api.TCP, DstPort: api.Port(uint16(1 + n))})
		origins = append(origins, nil)
	}
	txn := renderer.Changes{}
	txn.Render(labPod, renderer.PodConfig{IPs: []netip.Addr{own4, own6}, Egress: renderer.NewRuleList(append(large, api.ContivRule{}), append(origins, nil))})
	if err := l.r.Apply(t.Context(), txn); err != nil {
		t.Fatal(err)
	}
	l.want(false, "what only the old policy permits", compile.ToPod, xdp.Frame(tcpFlow(friend4, own4, 1, 80), false))
	l.want(false, "what the closed policy permits", compile.ToPod, xdp.Frame(tcpFlow(other4, own4, 1, 80), false))
	if u := l.r.Unenforced(); len(u) != 1 || u[0].Origin != origin[0] || u[0].Effect != renderer.EffectClosed || u[0].Pods != 1 || u[0].Class != api.ClassLimit {
		t.Errorf("it is reported as %+v", u)
	}
	l.render([]api.ContivRule{permitTCP(api.AddrNet(other4), 80, compile.ToPod)}, nil)
	l.want(true, "what a smaller policy permits", compile.ToPod, xdp.Frame(tcpFlow(other4, own4, 1, 80), false))
	l.want(false, "what it does not", compile.ToPod, xdp.Frame(tcpFlow(friend4, own4, 1, 80), false))
	if u := l.r.Unenforced(); len(u) != 0 {
		t.Errorf("%+v is still reported", u)
	}
}

// TestCountersRunOutAndRulesAreEnforced as others are. What they decide is not known, and that of
// others is.
func TestCountersRunOutAndRulesAreEnforced(t *testing.T) {
	const most = 1 << 20 // lines of the policy map
	l := newLab(t, func(o *labOptions) { o.kernel.PolicyMaps.MaxBytes = most })
	lines, slots := l.kernel.Limits()
	if lines != most/64 || slots < 256 {
		t.Fatalf("there may be %d lines and %d counters", lines, slots)
	}
	l.renderList(podWith(webList("few", 80)))
	rules := make([]api.ContivRule, slots)
	for i := range rules { // all but one are about an empty set, and take nothing but counters
		rules[i] = permitTCP(api.SetNet(400), 81, compile.ToPod)
	}
	rules[0] = permitTCP(api.AddrNet(friend4), 81, compile.ToPod)
	other := api.PodID{Namespace: "lab", Name: "other"}
	many := func(last uint16) {
		t.Helper()
		txn := renderer.Changes{}
		list := renderer.NewRuleList(append(slices.Clone(rules), permitTCP(api.AddrNet(friend4), last, compile.ToPod), api.ContivRule{}), nil)
		txn.Render(other, renderer.PodConfig{IPs: []netip.Addr{other4}, Egress: list})
		if err := l.r.Apply(t.Context(), txn); err != nil {
			t.Fatal(err)
		}
		for port, want := range map[uint16]bool{81: true, last: true, last + 1: false} {
			if ok, err := l.kernel.Permits(labID+1, compile.ToPod, tcpFlow(friend4, other4, 1, port)); ok != want || err != nil {
				t.Errorf("port %d: permitted is %t, want %t: %v", port, ok, want, err)
			}
		}
	}
	many(90)
	turn := l.kernel.Parity()
	many(95)
	if l.kernel.Parity() != turn {
		t.Error("memory was replaced without need")
	}
	l.packets(3, 80)
	for _, x := range l.r.Counters().Tables {
		if hits := x.Packets; x.Pods[0] == other && hits != nil || x.Pods[0] == labPod && !slices.Equal(hits, []uint64{3, 0}) {
			t.Errorf("of %s %d packets are known: %v", x.Name, len(hits), hits[:min(len(hits), 3)])
		}
	}
}

// scarce is a dataplane with few counters.
type scarce struct {
	xdp.Dataplane
	slots, prepared int
}

func (p *scarce) Limits() (lines, slots int) { return math.MaxInt, p.slots }

func (p *scarce) Prepare(lines, slots int) error {
	p.prepared++
	return p.Dataplane.Prepare(lines, slots)
}

// TestCountersAreSharedByRules: nothing is made anew for those that cannot be had.
func TestCountersAreSharedByRules(t *testing.T) {
	p := &scarce{Dataplane: xdp.NewHeap(), slots: 16}
	r, err := xdp.New(xdp.Options{Dataplane: p, Interfaces: func(api.PodID, []netip.Addr) []uint32 { return []uint32{labID} }})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{1, 40, 41, 42, 2} {
		ports := make([]uint16, n)
		for i := range ports {
			ports[i] = uint16(80 + i)
		}
		txn := renderer.Changes{Resync: true}
		txn.Render(labPod, podWith(webList("web", ports...)))
		if err := r.Apply(t.Context(), txn); err != nil {
			t.Fatal(err)
		}
		if hits := r.Counters().Tables[0].Packets; (hits != nil) != (n < p.slots/2) {
			t.Errorf("of %d rules %d hits are known", n, len(hits))
		}
		if got, err := r.Verdict(tcpFlow(friend4, own4, 1, uint16(79+n))); got != api.Permit || err != nil {
			t.Errorf("the last of %d rules: %s, %v", n, got, err)
		}
	}
	if p.prepared > 2 {
		t.Errorf("memory was made %d times", p.prepared)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestExplainNamesEnforcedRules also while there is no room for the desired policy, and what was in
// force stays.
func TestExplainNamesEnforcedRules(t *testing.T) {
	r, err := xdp.New(xdp.Options{Dataplane: xdp.NewHeap(), MaxLines: 1 << 15, Interfaces: func(pod api.PodID, _ []netip.Addr) []uint32 {
		if pod.Name == "many" { // so many that there is no room for their records
			ids := make([]uint32, 5000)
			for i := range ids {
				ids[i] = uint32(1000 + i)
			}
			return ids
		}
		return []uint32{uint32(pod.Name[0])}
	}})
	if err != nil {
		t.Fatal(err)
	}
	tell := func(name string, ip netip.Addr, rules ...api.ContivRule) error {
		var origins [][]api.Origin
		for i := range rules {
			origins = append(origins, []api.Origin{origin(name, i)})
		}
		txn := renderer.Changes{}
		txn.Render(api.PodID{Namespace: "lab", Name: name}, renderer.PodConfig{IPs: []netip.Addr{ip}, Egress: renderer.NewRuleList(rules, origins)})
		return r.Apply(t.Context(), txn)
	}
	web := permitTCP(api.AddrNet(friend4), 80, compile.ToPod)
	err = errors.Join(tell("c", own4, web, api.ContivRule{}), tell("b", other4, permitTCP(api.AddrNet(friend4), 81, compile.ToPod), api.ContivRule{}))
	if err != nil {
		t.Fatal(err)
	}
	check := func(when string) {
		t.Helper()
		d := r.Explain(tcpFlow(friend4, own4, 1, 80))
		if len(d) != 1 || d[0].Action != api.Permit || !slices.Equal(d[0].Origins, []api.Origin{origin("c", 0)}) {
			t.Errorf("%s %+v decides", when, d)
		}
	}
	check("before")
	if err := tell("many", own6, web); !errors.Is(err, xdp.ErrTooLarge) || !renderer.IsRefused(err) {
		t.Fatalf("the error is %v, want that it is too large, refused", err)
	}
	check("while nothing fits")
	if namesPod(r, api.PodID{Namespace: "lab", Name: "many"}) {
		t.Error("a pod is named as installed that is not")
	}
	if u := r.Unenforced(); !slices.ContainsFunc(u, func(u renderer.Unenforced) bool {
		return u.Origin == origin("many", 0) && u.Effect == renderer.EffectPrevious
	}) {
		t.Errorf("it is reported as %+v", u)
	}
	txn := renderer.Changes{}
	txn.Remove(api.PodID{Namespace: "lab", Name: "many"})
	if err := r.Apply(t.Context(), txn); err != nil {
		t.Fatal(err)
	}
	if u := r.Unenforced(); len(u) != 0 {
		t.Errorf("%+v is still reported", u)
	}
	if err := tell("a", own6, web); err != nil {
		t.Fatal(err)
	}
	check("behind that")
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestPolicyMapOfAnySizeCanBeRead: what programs read has the size of its map.
func TestPolicyMapOfAnySizeCanBeRead(t *testing.T) {
	l := newLab(t, func(o *labOptions) { o.kernel.PolicyMaps.Lines = 20000 })
	l.render([]api.ContivRule{permitTCP(api.AddrNet(friend4), 80, compile.ToPod)}, nil)
	if lines, _ := l.kernel.Size(); lines != 1<<15 {
		t.Errorf("there are %d lines", lines)
	}
	l.want(true, "port 80", compile.ToPod, xdp.Frame(tcpFlow(friend4, own4, 4000, 80), false))
	if _, err := xdp.NewKernel(xdp.KernelOptions{Mode: xdp.ModeNone, PolicyMaps: xdp.PolicyMaps{MaxBytes: 100}}); err == nil || !strings.Contains(err.Error(), "limit of map sizes: 100 bytes") {
		t.Errorf("memories of 100 bytes: %v", err)
	}
}

// TestConnectionTableIsAsLargeAsKernelAllows where it can less than is wanted.
func TestConnectionTableIsAsLargeAsKernelAllows(t *testing.T) {
	const most = 1 << 20
	l := newLab(t, func(o *labOptions) { o.kernel.PolicyMaps.MaxBytes, o.kernel.Flows = most, xdp.DefaultFlows })
	if got := l.kernel.FlowPlaces(); got != most/32 {
		t.Errorf("the table has %d places, want %d", got, most/32)
	}
	l.render(closed, []api.ContivRule{{Action: api.Permit}})
	l.open(7, 100)
	if got := l.answered(7, 100); got != 100 {
		t.Errorf("%d of 100 flows are answered", got)
	}
}

// TestPolicyMapIsReadToItsEnd has a record in its last lines, and one behind them. SLUICE_LONG=1
// has the largest one, too: 512 MiB.
func TestPolicyMapIsReadToItsEnd(t *testing.T) {
	sizes := []uint32{1 << 15}
	if renderertest.Whole() {
		sizes = append(sizes, xdp.DefaultMaxLines)
	}
	for _, lines := range sizes {
		l := newLab(t, func(o *labOptions) { o.kernel.PolicyMaps.Lines = int(lines) })
		l.render([]api.ContivRule{permitTCP(api.AddrNet(friend4), 80, compile.ToPod)}, nil)
		l.moveRecord(lines - 6)
		l.want(true, "port 80", compile.ToPod, xdp.Frame(tcpFlow(friend4, own4, 4000, 80), false))
		l.want(false, "port 81", compile.ToPod, xdp.Frame(tcpFlow(friend4, own4, 4000, 81), false))
		if err := l.kernel.Flip(labID, lines); err != nil {
			t.Fatal(err)
		}
		l.want(false, "port 80 of a record that is nowhere", compile.ToPod, xdp.Frame(tcpFlow(friend4, own4, 4000, 80), false))
	}
}

// moveRecord has the record of the pod, which has 6 lines, begin elsewhere.
func (l *lab) moveRecord(to uint32) {
	l.t.Helper()
	from := l.kernel.Record(labID)
	for i := range uint32(6 * compile.LineWords) {
		l.forgets(func() error { return l.kernel.Store(to*compile.LineWords+i, l.kernel.Word(from*compile.LineWords+i)) })
	}
	l.forgets(func() error { return l.kernel.Flip(labID, to) })
}

// TestPolicyMapIsLimitedToReadableSize: neither what a renderer may have, nor what a kernel
// is asked for.
func TestPolicyMapIsLimitedToReadableSize(t *testing.T) {
	const more = xdp.DefaultMaxLines + 1
	if _, err := xdp.New(xdp.Options{Dataplane: xdp.NewHeap(), Interfaces: func(api.PodID, []netip.Addr) []uint32 { return nil }, MaxLines: more}); err == nil {
		t.Error("a renderer may have a memory that no program can read")
	}
	needKernel(t)
	for _, o := range []xdp.PolicyMaps{{Lines: more}, {Slots: 1 << 27}} {
		if _, err := xdp.NewKernel(xdp.KernelOptions{Mode: xdp.ModeNone, Flows: 64, PolicyMaps: o}); !errors.Is(err, xdp.ErrTooLarge) {
			t.Errorf("%d lines, %d counters: the error is %v, want that it is too large", o.Lines, o.Slots, err)
		}
	}
}

// TestKernelChangesLeakNothing counts what is open after thousands of changes, of which
// many replace policy maps and links.
func TestKernelChangesLeakNothing(t *testing.T) {
	w := newWired(t, xdp.ModeAuto, xdp.KernelOptions{PinPath: bpffs(t)}, "a", "b")
	set := api.NewSetID("leak")
	changes := renderertest.Extent(1000, 10_000, 10_000)
	open, lines := 0, 0
	for i := range changes {
		if i%(changes/10) == 0 { // everything anew, also the process
			w.stop()
			w.start()
			w.apply(map[string]policy{"a": {fromPod: []api.ContivRule{{Action: api.Permit, Dst: api.SetNet(set), Protocol: api.TCP, DstPort: api.Port(80)}}}})
		}
		if i == changes/5 {
			open, lines = files(t), w.r.Lines()
		}
		a := netip.AddrFrom4([4]byte{10, byte(i % 3), byte(i / 7 % 5), byte(i)})
		added, removed := []netip.Prefix{netip.PrefixFrom(a, 32)}, []netip.Prefix(nil)
		if i%2 == 1 {
			added, removed = removed, []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte((i - 1) % 3), byte((i - 1) / 7 % 5), byte(i - 1)}), 32)}
		}
		txn := renderer.Changes{}
		txn.UpdateSet(set, added, removed)
		if i%50 == 0 {
			w.Must(wires.Inside(w.Node, func() error { return w.r.Apply(t.Context(), txn) }))
			continue
		}
		w.Must(w.r.Apply(t.Context(), txn))
	}
	if now := files(t); now > open+4 {
		t.Errorf("%d files were open after a fifth of the changes, %d are in the end", open, now)
	}
	if now := w.r.Lines(); now > 3*lines { // with what waits for a grace period
		t.Errorf("%d lines of memory were in use after a fifth of the changes, %d are in the end", lines, now)
	}
}

// files counts the maps, programs and links that the process has open.
func files(t *testing.T) (n int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && strings.Contains(to, "bpf") {
			n++
		}
	}
	return n
}
