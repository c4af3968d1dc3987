package bench

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/kvstore"
	"github.com/sluice-net/sluice/tests/lab/etcd"
	"github.com/sluice-net/sluice/tests/lab/programs"
)

// BenchmarkStoreProxies measures what an event and a list cost an etcd, its gRPC proxies and the
// agents behind them, each with the state of a workload. Etcd and every proxy are processes of
// their own; the agents' watches are in this one.
func BenchmarkStoreProxies(b *testing.B) {
	for _, w := range workloads(b) {
		b.Run(w.String(), func(b *testing.B) {
			members := etcd.Start(b, etcd.Options{Quota: 8 << 30})
			client := dialStore(b, members.Endpoints()...)
			write(b, client, w.resync(b))
			entries, _, err := client.List(b.Context(), model.Root(model.DefaultPrefix))
			if err != nil {
				b.Fatal(err)
			}
			pods := podsOf(entries)
			// With ten agents each, a hundred proxies cost etcd what they would with more.
			for _, n := range [][2]int{{0, 100}, {1, 100}, {2, 100}, {5, 100}, {10, 100}, {10, 10}, {30, 10}, {100, 10}} {
				b.Run(fmt.Sprintf("proxies=%d/agents-each=%d", n[0], n[1]), func(b *testing.B) {
					for range b.N {
						measureProxies(b, members, n[0], n[1], client, pods)
					}
				})
			}
		})
	}
}

// measureProxies writes pods while so many agents behind each proxy watch; without proxies, as many
// in all. Before, one agent lists the state.
func measureProxies(b *testing.B, members *etcd.Cluster, proxies, each int, client *kvstore.Client, pods []model.Entry) {
	endpoints, processes := members.Endpoints(), []int{}
	if proxies > 0 {
		endpoints = nil
	}
	for range proxies {
		address, pid := members.Proxy(b)
		endpoints, processes = append(endpoints, address), append(processes, pid)
	}
	used := func() (etcd, proxy, agents time.Duration) {
		for _, pid := range processes {
			proxy += programs.UsageOf(b, pid).CPU
		}
		return programs.UsageOf(b, members.PID(0)).CPU, proxy, cpuTime()
	}
	etcdBefore, proxyBefore, _ := used()
	lister := dialStore(b, endpoints[0])
	if _, _, err := lister.List(b.Context(), model.Root(model.DefaultPrefix)); err != nil {
		b.Fatal(err)
	}
	etcdThen, proxyThen, _ := used()
	b.ReportMetric((etcdThen - etcdBefore).Seconds(), "list-etcd-cpu-s")
	b.ReportMetric((proxyThen - proxyBefore).Seconds(), "list-proxies-cpu-s")

	agents := max(1, proxies) * each
	dialled := 0
	w := watchState(b, agents, revision(b, client), len(pods), func() *kvstore.Client {
		dialled++
		return dialStore(b, endpoints[dialled%len(endpoints)])
	})
	defer w.end()
	etcdBefore, proxyBefore, agentsBefore := used()
	start := time.Now()
	b.ReportMetric(float64(members.Watches(b, 0)), "etcd-watches")
	w.write(b, client, pods)
	took := time.Since(start)
	etcdThen, proxyThen, agentsThen := used()
	b.ReportMetric(perEvent(etcdThen-etcdBefore, pods), "etcd-cpu-us/event")
	b.ReportMetric(perEvent(proxyThen-proxyBefore, pods)/float64(max(1, proxies)), "proxy-cpu-us/event")
	b.ReportMetric(perEvent(agentsThen-agentsBefore, pods)/float64(agents), "agent-cpu-us/event")
	b.ReportMetric(float64(len(pods)*agents)/took.Seconds(), "deliveries/s")
	peak := int64(0)
	for _, pid := range processes {
		peak = max(peak, programs.UsageOf(b, pid).Peak)
	}
	b.ReportMetric(float64(peak)/(1<<20), "proxy-peak-MiB")
}
