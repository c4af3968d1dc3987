package policytest

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/analysis/expr"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/plugins/ksr/kinds"
	"github.com/sluice-net/sluice/tests/lab/cluster"
)

const shopFile = "../../../docs/examples/tests/shop.yaml"

func TestOraclePassesShopExample(t *testing.T) {
	files, err := Load(shopFile, nil)
	if err != nil {
		t.Fatal(err)
	}
	report := mustRun(t, NewRunner(NewOracle()), files[0])
	if !report.OK() || report.Steps != 5 {
		t.Errorf("report:\n%s", written(t, report))
	}
	// 13 pods and 4 externals on 17 ports, without pairs of two externals, and
	// the probes of all steps; the pods with two families add theirs.
	if report.Probes < 13*(12+2*4)*17 {
		t.Errorf("only %d probes were asked", report.Probes)
	}
}

// TestOracleFailsShopExampleWithoutPolicy removes the policies of the shop, one at a time: a test
// that does not fail then protects nothing. Only the removal of a default deny changes nothing,
// because every pod has another policy that isolates it.
func TestOracleFailsShopExampleWithoutPolicy(t *testing.T) {
	files, err := Load(shopFile, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := NewRunner(NewOracle())
	mustRun(t, r, &File{Source: "shop", Dir: files[0].Dir, Externals: files[0].Externals, Start: files[0].Start})
	tried := 0
	for id := range r.world.objects {
		if id.Kind != model.KindNetworkPolicy || id.Name == "default-deny" {
			continue
		}
		tried++
		without := &File{Source: "shop", Dir: files[0].Dir, Externals: files[0].Externals,
			Start: Step{Files: files[0].Start.Files},
			Steps: []Step{{Path: "steps[0]", Delete: []model.ID{id}, Matrix: files[0].Start.Matrix}}}
		if report := mustRun(t, NewRunner(NewOracle()), without); report.MismatchCount == 0 {
			t.Errorf("nobody misses %s", id)
		}
	}
	if tried < 10 {
		t.Errorf("only %d policies were tried", tried)
	}
}

// TestMatrixAgreesWithOracle makes a matrix of what the oracle says about a
// random cluster: it holds, and with one flow turned around it does not.
func TestMatrixAgreesWithOracle(t *testing.T) {
	cfg := cluster.Small()
	cfg.Odd = false
	rapid.Check(t, func(rt *rapid.T) {
		state := cluster.Gen(cfg).Draw(rt, "state")
		f := &File{Source: "random", Name: "random", AllowProblems: true, Start: Step{Matrix: &Matrix{
			Ports: []Port{{Number: 80, Protocol: api.TCP}, {Number: 53, Protocol: api.UDP}, {Protocol: api.ICMP}}}}}
		for _, o := range append(objectsOf(state), kinds.ImpliedNamespaces(objectsOf(state))...) {
			f.Start.Objects = append(f.Start.Objects, rawObject(rt, o))
		}
		pods := livePods(state)
		f.Start.Matrix.Allow = allowedBy(state, pods, f.Start.Matrix.Ports)
		report, err := Run(rt.Context(), f, []Subject{NewOracle()}, Options{})
		if len(f.Start.Matrix.Allow) == 0 && report.Probes == 0 {
			return // fewer than two pods that can talk
		}
		if err != nil || !report.OK() {
			rt.Fatalf("error %v, %d mismatches: %+v", err, report.MismatchCount, report.Mismatches)
		}
		if n := len(f.Start.Matrix.Allow); n > 0 {
			i := rapid.IntRange(0, n-1).Draw(rt, "entry")
			f.Start.Matrix.Allow = slices.Delete(f.Start.Matrix.Allow, i, i+1)
			report, err := Run(rt.Context(), f, []Subject{NewOracle()}, Options{})
			if err != nil || report.MismatchCount != 1 || report.Mismatches[0].Got != Allow {
				rt.Fatalf("error %v, %d mismatches after one entry less: %+v", err, report.MismatchCount, report.Mismatches)
			}
		}
	})
}

func rawObject(t *rapid.T, o kinds.Object) json.RawMessage {
	raw, err := json.Marshal(o.Object)
	if err != nil {
		t.Fatal(err)
	}
	version := map[string]string{"Pod": "v1", "Namespace": "v1", "Node": "v1", "NetworkPolicy": "networking.k8s.io/v1",
		"ClusterNetworkPolicy": "policy.networking.k8s.io/v1alpha2"}[o.ID().Kind.String()]
	if version == "" {
		version = "policy.networking.k8s.io/v1alpha1"
	}
	head := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,`, version, o.ID().Kind)
	return append([]byte(head), raw[1:]...)
}

func livePods(s cluster.State) []*corev1.Pod {
	var out []*corev1.Pod
	for _, p := range s.Pods {
		if len(newPod(p).ownAddresses()) > 0 {
			out = append(out, p)
		}
	}
	return out
}

// allowedBy returns an entry for every flow between two pods that the oracle
// allows, by their addresses.
func allowedBy(s cluster.State, pods []*corev1.Pod, ports []Port) []AllowEntry {
	s.Namespaces = slices.Clone(s.Namespaces)
	for _, o := range kinds.ImpliedNamespaces(objectsOf(s)) {
		s.Namespaces = append(s.Namespaces, o.Object.(*corev1.Namespace))
	}
	o := oracle.New(s)
	var out []AllowEntry
	for _, src := range pods {
		for _, dst := range pods {
			if src == dst {
				continue
			}
			for _, a := range newPod(src).addrs {
				for _, b := range newPod(dst).addrs {
					for _, p := range ports {
						if a.Is4() == b.Is4() && o.Allowed(question(Endpoint{Addr: a}, Endpoint{Addr: b}, p).Flow) {
							out = append(out, AllowEntry{From: []Expr{{Endpoint: expr.Endpoint{Text: a.String(), Addr: a}}}, To: []Expr{{Endpoint: expr.Endpoint{Text: b.String(), Addr: b}}}, Ports: []Port{p}})
						}
					}
				}
			}
		}
	}
	return out
}

func BenchmarkShop(b *testing.B) {
	files, err := Load(shopFile, nil)
	if err != nil {
		b.Fatal(err)
	}
	probes := 0
	for b.Loop() {
		report, err := Run(b.Context(), files[0], []Subject{NewOracle()}, Options{})
		if err != nil {
			b.Fatal(err)
		}
		probes += report.Probes
	}
	b.ReportMetric(float64(probes)/b.Elapsed().Seconds(), "probes/s")
}

// BenchmarkExpand measures a matrix without anybody who answers.
func BenchmarkExpand(b *testing.B) {
	w := newWorld()
	w.apply(objectsOf(cluster.Random(1, cluster.Large(200, 0))), nil)
	m := &Matrix{Allow: []AllowEntry{{From: []Expr{allPods}, To: []Expr{allPods}, AllPorts: true}}}
	x := &expansion{world: w, file: &File{}, step: Step{Matrix: m}}
	checks := 0
	for b.Loop() {
		for range x.checks() {
			checks++
		}
	}
	if len(x.problems) > 0 {
		b.Fatal(x.problems)
	}
	b.ReportMetric(float64(checks)/b.Elapsed().Seconds(), "checks/s")
}
