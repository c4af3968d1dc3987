package bench

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha2"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
)

// workloadEnv names the variable that lists directories of generated workloads,
// separated by colons. Each holds Kubernetes objects as JSON lines (init.jsonl),
// events (events.jsonl: {"op","tag","object"}) and the ground truth (stats.json).
const workloadEnv = "SLUICE_WORKLOAD"

// workloadNode is the node whose view is measured.
const workloadNode = "node-0000"

// workload is one directory. What is read is not kept, so that it does not occupy the heap during a
// measurement.
type workload struct{ dir string }

// String names the workload in benchmarks.
func (w workload) String() string { return filepath.Base(w.dir) }

// workloads returns those that there are, and skips the test without any.
func workloads(tb testing.TB) []workload {
	var out []workload
	for _, dir := range filepath.SplitList(os.Getenv(workloadEnv)) {
		out = append(out, workload{dir})
	}
	if out == nil {
		tb.Skipf("%s names no workload", workloadEnv)
	}
	return out
}

// stats is the ground truth that a generator made by itself, of the whole cluster.
type stats struct {
	Pods, Nodes, Policies, AdminPolicies      int
	AppliedPairs, PeerPairsUnique, MaxPeerSet int
	AppliedDigest                             string
}

func (w workload) stats(tb testing.TB) stats {
	tb.Helper()
	var s stats
	b, err := os.ReadFile(filepath.Join(w.dir, "stats.json"))
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// lines calls back for every line of a file.
func (w workload) lines(tb testing.TB, file string, line func([]byte)) {
	tb.Helper()
	f, err := os.Open(filepath.Join(w.dir, file))
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	s := bufio.NewScanner(f)
	s.Buffer(nil, 64<<20)
	for s.Scan() {
		line(s.Bytes())
	}
	if err := s.Err(); err != nil {
		tb.Fatal(err)
	}
}

// objects calls back for every object of the start.
func (w workload) objects(tb testing.TB, object func(any)) {
	tb.Helper()
	w.lines(tb, "init.jsonl", func(line []byte) { object(decode(tb, line)) })
}

var kindsOfWorkloads = map[string]func() any{
	"Pod":                        func() any { return new(corev1.Pod) },
	"Namespace":                  func() any { return new(corev1.Namespace) },
	"Node":                       func() any { return new(corev1.Node) },
	"NetworkPolicy":              func() any { return new(networkingv1.NetworkPolicy) },
	"AdminNetworkPolicy":         func() any { return new(v1alpha1.AdminNetworkPolicy) },
	"BaselineAdminNetworkPolicy": func() any { return new(v1alpha1.BaselineAdminNetworkPolicy) },
	"ClusterNetworkPolicy":       func() any { return new(v1alpha2.ClusterNetworkPolicy) },
}

// decode reads one object, which begins with its kind.
func decode(tb testing.TB, line []byte) any {
	tb.Helper()
	head := line[:min(len(line), 100)]
	var out any
	for kind, empty := range kindsOfWorkloads {
		if bytes.Contains(head, []byte(`"kind":"`+kind+`"`)) {
			out = empty()
		}
	}
	if out == nil {
		tb.Fatalf("the workload has an object of another kind: %s", head)
	}
	if err := json.Unmarshal(line, out); err != nil {
		tb.Fatal(err)
	}
	return out
}

// event is one change of a workload.
type event struct {
	tag    string
	change change
}

func (w workload) events(tb testing.TB) []event {
	tb.Helper()
	var out []event
	w.lines(tb, "events.jsonl", func(line []byte) {
		var e struct {
			Op, Tag string
			Object  json.RawMessage
		}
		if err := json.Unmarshal(line, &e); err != nil {
			tb.Fatal(err)
		}
		o := decode(tb, e.Object)
		if e.Op == "delete" {
			out = append(out, event{e.Tag, removing(o)})
			return
		}
		out = append(out, event{e.Tag, putting(o)})
	})
	return out
}

// resync returns the start as the plugin takes it.
func (w workload) resync(tb testing.TB) model.Changes {
	tb.Helper()
	all := model.Changes{Resync: true}
	w.objects(tb, func(o any) { all.Deltas = append(all.Deltas, putting(o).changes(tb).Deltas...) })
	return all
}

// world returns the objects of the start.
func (w workload) world(tb testing.TB) world {
	tb.Helper()
	out := world{}
	w.objects(tb, func(o any) { out.apply(putting(o)) })
	return out
}

// TestWorkloadGroundTruth compares which policies apply to which pods, in the whole
// cluster, with the digest that the generator of the workload made by itself.
func TestWorkloadGroundTruth(t *testing.T) {
	for _, w := range workloads(t) {
		t.Run(w.String(), func(t *testing.T) {
			want := w.stats(t)
			if want.Pods > 20_000 {
				t.Skip("too large to make all of its pods local")
			}
			s := startSubject(t, recorder, "", nil)
			defer s.close()
			s.apply(w.resync(t))
			snapshot, err := s.plugin.Snapshot(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var pairs int
			var digest uint64
			for _, p := range snapshot.Pods {
				for _, np := range p.Policies {
					if np.Kind != api.NetworkPolicy {
						continue // the generator counts those of namespaces only
					}
					pairs++
					digest += pairHash(np, p.ID)
				}
			}
			if got := fmt.Sprintf("%016x", digest); got != want.AppliedDigest || pairs != want.AppliedPairs {
				t.Errorf("%d policies of pods with digest %s, want %d with %s", pairs, got, want.AppliedPairs, want.AppliedDigest)
			}
			if len(snapshot.Pods) != want.Pods || len(snapshot.Policies) != want.Policies+want.AdminPolicies {
				t.Errorf("%d pods and %d policies, want %d and %d", len(snapshot.Pods), len(snapshot.Policies), want.Pods, want.Policies+want.AdminPolicies)
			}
			checkSets(t, s, want)
		})
	}
}

// checkSets checks what the ground truth bounds: the sets of selectors that some
// policy uses are among the sets of all peers.
func checkSets(tb testing.TB, s *subject, want stats) {
	tb.Helper()
	if want.AdminPolicies > 0 {
		return // their peers are not counted
	}
	snapshot, err := s.plugin.Snapshot(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	members, largest := 0, 0
	for _, set := range snapshot.Sets {
		if len(set.Users) == 0 {
			continue // made of blocks, or of nodes
		}
		members += len(set.Members)
		largest = max(largest, len(set.Members))
	}
	// A selector that is used with two named ports is a set for each of them.
	if members > 2*want.PeerPairsUnique || largest > want.MaxPeerSet || (members == 0) != (want.PeerPairsUnique == 0) {
		tb.Errorf("%d members, the largest set has %d: there are %d pairs, at most %d in a set", members, largest, want.PeerPairsUnique, want.MaxPeerSet)
	}
}

// pairHash hashes a policy and a pod as the generator does.
func pairHash(policy api.PolicyID, pod api.PodID) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(strings.Join([]string{policy.Namespace + "/" + policy.Name, pod.String()}, "\x00")))
	z := h.Sum64()
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
