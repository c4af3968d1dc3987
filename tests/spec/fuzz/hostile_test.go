package fuzz

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/manifests"
	"github.com/sluice-net/sluice/plugins/ksr/convert"
)

// maxAllocated bounds what one object may make every room together allocate, in
// bytes, garbage included: measured are up to 700 MB.
const maxAllocated = 3 << 30

// bounded fails the test when f allocates more than that.
func bounded(t *testing.T, limit uint64, f func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > limit {
		t.Errorf("%d MB were allocated, want at most %d", n>>20, limit>>20)
	}
}

// toWeb is a flow from db to web.
func toWeb(port uint16) api.Flow {
	return api.Flow{Src: netip.MustParseAddr("10.0.0.2"), Dst: netip.MustParseAddr("10.0.0.1"), Protocol: api.TCP, SrcPort: 1, DstPort: port}
}

// verdicts reports whether db reaches web on two ports, web reaches db, and an outside host reaches
// web.
func verdicts(r *rooms) string {
	flows := []api.Flow{toWeb(1000), toWeb(9), toWeb(9).Reverse(), toWeb(9)}
	flows[3].Src = netip.MustParseAddr(hostText(4))
	out := ""
	for _, f := range flows {
		out += map[api.Action]string{api.Permit: "+", api.Deny: "-"}[r.recorder.Verdict(f)]
	}
	return out
}

func TestObjectsOfHostileSize(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes under the race detector")
	}
	const open, isolated = "++++", "--+-"
	tooLarge := func(bytes int) []string {
		return []string{fmt.Sprintf("needs %d bytes in the store, the limit is 1556480: split it", bytes)}
	}
	for _, c := range []struct {
		name     string
		object   any
		problems []string // with what is common left out; none: it works
		verdicts string   // see there
	}{
		{"75 000 blocks", blocks(75_000), nil, "--++"},
		{"100 000 blocks", blocks(100_000), tooLarge(2_000_000), open},
		{"75 000 selectors", selectors(75_000), nil, isolated},
		{"150 000 selectors", selectors(150_000), tooLarge(2_000_000), open},
		{"100 000 rules", rules(100_000), nil, "+-+-"},
		{"100 000 ports", ports(100_000), nil, "+-+-"},
		{"40 000 ports for 40 000 blocks", portsAndBlocks(40_000), nil, isolated},
		{"90 000 exceptions", excepts(90_000), nil, "+++-"},
		{"1 000 000 exceptions", excepts(1_000_000), tooLarge(16_000_000), open},
		{"75 000 conditions", expressions(75_000), nil, "+++-"},
		{"150 000 conditions", expressions(150_000), tooLarge(2_000_000), open},
		{"100 000 values", values(100_000), nil, "+++-"},
		{"100 000 peers that name nothing", badPeers(100_000), []string{"names no peer", "has 99900 more problems"}, isolated},
		{"300 names of ports for 300 peers", families(300), nil, "----"},
		{"1 000 names of ports for 1 000 peers", families(1000),
			[]string{"spec.egress[0]: the rule matches nothing: its 1000000 combinations of a peer with the name of a port"}, "----"},
		{"a pod with 64 addresses", podAddresses(64), nil, open},
		{"a pod with 10 000 addresses", podAddresses(10_000), []string{"status.podIPs: has 10000 addresses, the limit is 64: the others are left out"}, open},
		{"a pod with 100 000 labels", podLabels(100_000), nil, open},
		{"a pod with 60 000 ports", podPorts(60_000), nil, open},
	} {
		t.Run(c.name, func(t *testing.T) {
			bounded(t, maxAllocated, func() {
				m, problems := convert.ToModel(c.object)
				checkTexts(t, problems, c.problems)
				r := newRooms(t)
				state := append([]proto.Message{}, residents...)
				if m != nil {
					state = append(state, stored(t, m))
				}
				r.apply(resync(t, state))
				if got := verdicts(r); got != c.verdicts {
					t.Errorf("verdicts %s, want %s", got, c.verdicts)
				}
			})
		})
	}
}

// checkTexts wants each text in a problem, in order, the first for as many problems
// as it takes, and nothing that is long. Sizes are compared by their digits.
func checkTexts(t *testing.T, problems []api.Problem, want []string) {
	t.Helper()
	if len(problems) > model.MaxProblems+1 {
		t.Errorf("%d problems, want at most %d", len(problems), model.MaxProblems+1)
	}
	for i, text := range want {
		at := min(i*(len(problems)-1), len(problems)-1)
		if at < 0 {
			t.Fatalf("no problem is reported, want %q", text)
		}
		if got := problems[at].Error(); !strings.Contains(withoutSize(got), withoutSize(text)) || len(got) > 1000 {
			t.Errorf("problem %d is %.300q, want %q", at, got, text)
		}
	}
	if len(want) == 0 && len(problems) > 0 {
		t.Errorf("%d problems, the first is %.300q", len(problems), problems[0].Error())
	}
}

// withoutSize takes the exact number of bytes out of a message on the size of a value.
func withoutSize(text string) string {
	before, rest, ok := strings.Cut(text, "needs ")
	_, after, more := strings.Cut(rest, " bytes in the store")
	if !ok || !more {
		return text
	}
	return before + "needs so many bytes in the store" + after
}

func TestEntriesOfHostileSize(t *testing.T) {
	huge := strings.Repeat("x", 1<<20)
	pod := func(change func(*model.Pod)) model.Entry {
		p := &model.Pod{Namespace: "shop", Name: "big", Ips: []string{"10.0.0.9"}, NodeName: node, NodeIps: []string{nodeAddr}}
		change(p)
		return entry(t, p)
	}
	for _, c := range []struct {
		name    string
		entry   model.Entry
		problem string // empty: it works
	}{
		{"a key of a megabyte", model.Entry{Key: "/sluice/k8s/pod/shop/" + huge, Value: []byte{}}, "the name has 1048576 bytes, the limit is 253"},
		{"a key with a million parts", model.Entry{Key: "/sluice/k8s/" + strings.Repeat("/", 1<<20), Value: []byte{}}, "want /sluice/k8s/<kind>/<namespace>/<name>"},
		{"a namespace in a key of a megabyte", model.Entry{Key: "/sluice/k8s/pod/" + huge + "/a", Value: []byte{}}, "the namespace has 1048576 bytes, the limit is 63"},
		{"a value above the limit of etcd", pod(func(p *model.Pod) { p.NodeName = huge + huge }), "bytes in the store, the limit is 1556480: split it"},
		{"the name of another object in the value", model.Entry{Key: "/sluice/k8s/pod/shop/a", Value: pod(func(p *model.Pod) { p.Name = huge }).Value}, "the value is of Pod shop/xxx"},
		{"a label of a megabyte", pod(func(p *model.Pod) { p.Labels = []*model.Label{{Key: "app", Value: huge}} }), ""},
		{"the name of a port of a megabyte", pod(func(p *model.Pod) { p.NamedPorts = []*model.Pod_NamedPort{{Name: huge, Protocol: 1, Port: 80}} }), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			bounded(t, 256<<20, func() {
				var entries []model.Entry
				for _, m := range residents {
					entries = append(entries, entry(t, m))
				}
				w, problems := follow(t, append(entries, c.entry))
				changes, err := w.Next(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				r := newRooms(t)
				found := append(*problems, r.apply(changes)...)
				if c.problem == "" && len(found) > 0 || c.problem != "" && (len(found) != 1 || !strings.Contains(found[0].Error(), c.problem) || len(found[0].Error()) > 1000) {
					t.Errorf("problems %.500v, want %q", found, c.problem)
				}
				if got := verdicts(r); got != "++++" {
					t.Errorf("verdicts %s", got)
				}
			})
		})
	}
}

// TestAddressesAreLimitedForEveryWriter: what ksr leaves out is left out of values
// that it did not write, too.
func TestAddressesAreLimitedForEveryWriter(t *testing.T) {
	pod := &model.Pod{Namespace: "shop", Name: "big", NodeName: node}
	for i := range 10_000 {
		pod.Ips, pod.NodeIps = append(pod.Ips, hostText(i)), append(pod.NodeIps, hostText(20_000+i))
	}
	r := newRooms(t)
	problems := r.apply(resync(t, append([]proto.Message{pod}, residents...)))
	checkTexts(t, problems, []string{"Pod shop/big: status.podIPs: has 10000 addresses, the limit is 64: the others are left out"})
	if cfg := r.recorder.Pods()[api.PodID{Namespace: "shop", Name: "big"}]; len(cfg.IPs) != model.MaxAddresses {
		t.Errorf("the pod has %d addresses, want %d", len(cfg.IPs), model.MaxAddresses)
	}
	if n := len(r.recorder.Sets()[api.NodeSet]); n != model.MaxAddresses+1 {
		t.Errorf("the node has %d addresses, want %d", n, model.MaxAddresses+1)
	}
}

// TestFamiliesAreLimitedForEveryWriter: the rules after the one that is too much
// still hold.
func TestFamiliesAreLimitedForEveryWriter(t *testing.T) {
	rule := &model.NetworkPolicy_Rule{}
	for i := range 1000 {
		rule.Ports = append(rule.Ports, &model.NetworkPolicy_Port{Protocol: model.Protocol_PROTOCOL_TCP, Port: &model.NetworkPolicy_Port_Name{Name: fmt.Sprintf("p%d", i)}})
		rule.Peers = append(rule.Peers, &model.NetworkPolicy_Peer{PodSelector: &model.LabelSelector{}})
	}
	np := policyOf(&model.NetworkPolicy_Rule{})
	np.Egress = []*model.NetworkPolicy_Rule{rule, {Ports: []*model.NetworkPolicy_Port{
		{Protocol: model.Protocol_PROTOCOL_TCP, Port: &model.NetworkPolicy_Port_Name{Name: "sql"}}}}}
	r := newRooms(t)
	problems := r.apply(resync(t, append([]proto.Message{np}, residents...)))
	checkTexts(t, problems, []string{"NetworkPolicy shop/p: spec.egress[0]: the rule matches nothing: its 1000000 combinations"})
	flow := toWeb(5432)
	flow.Src, flow.Dst = flow.Dst, flow.Src
	if r.recorder.Verdict(flow) != api.Permit {
		t.Error("the second rule does not hold")
	}
	if flow.DstPort = 80; r.recorder.Verdict(flow) != api.Deny {
		t.Error("the first rule permits something")
	}
}

// TestSelectorsAreReleased: a policy that names many selectors, each twice, and
// then goes, leaves none behind.
func TestSelectorsAreReleased(t *testing.T) {
	np := selectors(100)
	np.Spec.Ingress = append(np.Spec.Ingress, np.Spec.Ingress[0])
	m, _ := convert.ToModel(np)
	r := newRooms(t)
	r.apply(resync(t, append([]proto.Message{m}, residents...)))
	if n := len(r.snapshot().Sets); n != 101 { // and that of the node
		t.Errorf("%d sets, want 101", n)
	}
	r.apply(resync(t, residents))
	if n := len(r.snapshot().Sets); n != 1 {
		t.Errorf("%d sets are left, want that of the node", n)
	}
}

func TestManifestsOfHostileSize(t *testing.T) {
	const beforeAndAfter = "apiVersion: v1\nkind: Namespace\nmetadata: {name: %s}\n---\n"
	pod := "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n"
	scalar := "x: &a \"" + strings.Repeat("x", 20_000) + "\"\n"
	for _, c := range []struct{ name, text, problem string }{
		{"aliases of a long text", pod + scalar + "y: [" + strings.Repeat("*a,", 20_000) + "]\n", "with its aliases written out is larger than the limit of 33554432 bytes"},
		{"aliases of aliases", pod + billion(), "document contains excessive aliasing"},
		{"YAML nested 100 000 deep", pod + "spec: " + strings.Repeat("[", 100_000), "exceeded max depth of 10000"},
		{"YAML nested 9 000 deep", pod + "spec: " + strings.Repeat("[", 9000) + strings.Repeat("]", 9000), "spec: must be an object, not a list"},
		{"JSON nested 100 000 deep", strings.Repeat(`{"a":`, 100_000), "exceeded max depth of 10000"},
		{"JSON nested 9 000 deep", `{"apiVersion":"v1","kind":"Pod","metadata":` + strings.Repeat(`{"a":`, 9000) + "1" + strings.Repeat("}", 9000) + "}", "metadata.a: is not a known field"},
		{"a label of a megabyte", pod[:len(pod)-2] + ", labels: {app: " + strings.Repeat("x", 1<<20) + "}}\n", "(1048576 bytes) is not a label value"},
		{"YAML above the limit", pod + "spec: {nodeName: " + strings.Repeat("x", 32<<20) + "}\n", "is larger than the limit of 33554432 bytes for a YAML document"},
		{"JSON above the limit", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"nodeName":"` + strings.Repeat("x", 16<<20) + `"}}`, "bytes as JSON, the limit is 16777216: split it"},
		{"10 000 bad documents", strings.Repeat("x\n---\n", 10_000), "has 9000 more documents or objects that cannot be used"},
		{"a list of 10 000 bad items", `{"apiVersion":"v1","kind":"List","items":[` + strings.Repeat("0,", 9_999) + "0]}", "has 9000 more documents or objects that cannot be used"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bounded(t, 1<<30, func() {
				text := fmt.Sprintf(beforeAndAfter, "before") + c.text + "\n---\n" + fmt.Sprintf(beforeAndAfter, "after")
				objects, problems := manifests.Decode(strings.NewReader(text), "f")
				if len(problems) == 0 || len(problems) > 1001 {
					t.Fatalf("%d problems", len(problems))
				}
				if got := problems[len(problems)-1].Error(); !strings.Contains(got, c.problem) || len(got) > 1000 {
					t.Errorf("the problem is %.300q, want %q", got, c.problem)
				}
				if len(objects) != 2 {
					t.Errorf("%d objects are read, want those before and after", len(objects))
				}
			})
		})
	}
}

// billion is ten aliases of ten aliases of ten aliases, nine times.
func billion() string {
	s := "a0: &a0 [x]\n"
	for i := range 9 {
		s += fmt.Sprintf("a%d: &a%d [%s]\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*a%d,", i), 10))
	}
	return s
}

func TestManifestsAboveLimitAreNotRead(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "large.yaml")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(1<<30 + 1); err != nil { // takes no room on the disk
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "small.yaml"), []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	bounded(t, 16<<20, func() {
		load, err := manifests.LoadFiles([]string{dir}, nil)
		if err != nil || len(load.Objects) != 1 {
			t.Fatalf("objects %v, %v", load.Objects, err)
		}
		checkTexts(t, load.Problems, []string{"large.yaml: cannot be read: it is larger than the limit of 1073741824 bytes: split it"})
	})
}

// cpuTime is what the process has used, garbage collector included: the more honest
// figure on a machine that is not idle.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkSizes measures one object from the Kubernetes object to the renderer's
// commit, at a size and at ten times as much: what is more than ten times as long is
// not linear.
func BenchmarkSizes(b *testing.B) {
	for _, c := range []struct {
		name string
		make func(n int) any
		n    int
	}{
		{"blocks", func(n int) any { return blocks(n) }, 7_500},
		{"selectors", func(n int) any { return selectors(n) }, 7_500},
		{"rules", func(n int) any { return rules(n) }, 10_000},
		{"ports", func(n int) any { return ports(n) }, 10_000},
		{"ports-and-blocks", func(n int) any { return portsAndBlocks(n) }, 4_000},
		{"exceptions", func(n int) any { return excepts(n) }, 9_000},
		{"conditions", func(n int) any { return expressions(n) }, 7_500},
		{"values", func(n int) any { return values(n) }, 10_000},
		{"bad-peers", func(n int) any { return badPeers(n) }, 10_000},
		{"families", func(n int) any { return families(n) }, 31},
		{"pod-labels", func(n int) any { return podLabels(n) }, 10_000},
		{"pod-ports", func(n int) any { return podPorts(n) }, 6_000},
	} {
		for _, n := range []int{c.n, 10 * c.n} {
			b.Run(fmt.Sprintf("%s/%d", c.name, n), func(b *testing.B) {
				object := c.make(n)
				b.ReportAllocs()
				start := cpuTime(b)
				for b.Loop() {
					m, _ := convert.ToModel(object)
					if m == nil {
						b.Fatal("refused")
					}
					newRooms(b).apply(resync(b, append([]proto.Message{stored(b, m)}, residents...)))
				}
				b.ReportMetric(float64((cpuTime(b)-start).Microseconds())/1000/float64(b.N), "cpu-ms/op")
			})
		}
	}
}
