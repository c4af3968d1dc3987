package bench

import (
	"log/slog"
	"testing"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/policytest"
	"github.com/sluice-net/sluice/plugins/ksr/kinds"
	"github.com/sluice-net/sluice/tests/lab/cluster"
)

const shopTests = "../../docs/examples/tests/shop.yaml"

// BenchmarkPolicyTests runs the policy tests of the shop example through the oracle
// and the dataplane, from nothing. The rates are of asking alone; an operation is a
// whole run with starting nodes and applying manifests.
func BenchmarkPolicyTests(b *testing.B) {
	files, err := policytest.Load(shopTests, nil)
	if err != nil {
		b.Fatal(err)
	}
	asking, probes := map[string]time.Duration{}, map[string]int{}
	for b.Loop() {
		fabric := policytest.NewFabric(slog.New(slog.DiscardHandler))
		runner := policytest.NewRunner(policytest.NewOracle(), fabric)
		for _, f := range files {
			report, err := runner.Run(b.Context(), f, policytest.Options{})
			if err != nil || !report.OK() {
				b.Fatalf("%s: %v: %+v", f.Source, err, report.Mismatches)
			}
			for _, s := range report.Subjects {
				asking[s.Name] += s.Asking
				probes[s.Name] += s.Probes
			}
		}
		if err := fabric.Close(); err != nil {
			b.Fatal(err)
		}
	}
	for name, d := range asking {
		b.ReportMetric(float64(probes[name])/d.Seconds(), name+"-probes/s")
	}
}

// BenchmarkProbe measures one question in a random cluster of 200 pods, 100
// policies and 4 nodes. Both subjects must give the same answers.
func BenchmarkProbe(b *testing.B) {
	cfg := cluster.Large(200, 100)
	state := cluster.Random(1, cfg)
	state.Nodes = nil // subjects learn nodes from their pods
	var objects []kinds.Object
	for _, ns := range state.Namespaces {
		objects = append(objects, kinds.Object{Object: ns})
	}
	for _, np := range state.Policies {
		objects = append(objects, kinds.Object{Object: np})
	}
	for _, p := range state.Pods {
		objects = append(objects, kinds.Object{Object: p})
	}
	fabric := policytest.NewFabric(slog.New(slog.DiscardHandler))
	b.Cleanup(func() {
		if err := fabric.Close(); err != nil {
			b.Error(err)
		}
	})
	flows := cluster.FlowSpace(state).Random(cluster.NewRand(2), 2000)
	answers := make(map[api.Flow]bool, len(flows))
	for _, s := range []policytest.Subject{policytest.NewOracle(), fabric} {
		if err := s.Apply(b.Context(), objects, nil); err != nil {
			b.Fatal(err)
		}
		b.Run(s.Name(), func(b *testing.B) {
			ask := func(f api.Flow) bool {
				a, err := s.Ask(b.Context(), policytest.Question{Flow: f})
				if err != nil {
					b.Fatal(err)
				}
				return a.Allowed
			}
			i := 0
			for b.Loop() {
				ask(flows[i%len(flows)])
				i++
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "probes/s")
			for _, f := range flows {
				got := ask(f)
				if want, ok := answers[f]; ok && got != want {
					b.Errorf("%s: %s says %v, the other subject does not", f, s.Name(), got)
				}
				answers[f] = got
			}
		})
	}
}
