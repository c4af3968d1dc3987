package main

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-net/sluice/tests/lab/wires"
)

// percentiles reports those of some times.
func percentiles(b *testing.B, of string, times []time.Duration) {
	slices.Sort(times)
	for _, p := range []int{50, 99} {
		b.ReportMetric(float64(times[(len(times)-1)*p/100].Microseconds())/1000, fmt.Sprintf("ms-p%d-%s", p, of))
	}
}

// enforced returns when it is in force that a pod may ask another one, or that it may not any more:
// when the first of three datagrams in a row was sent that is not answered.
func enforced(ns netns.NsHandle, to string, want bool) (time.Time, error) {
	var first time.Time
	missed := 0
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		sent := time.Now()
		if _, err := ask(ns, "udp", to, 20*time.Millisecond); err == nil {
			if missed = 0; want {
				return time.Now(), nil
			}
			continue
		}
		if missed++; missed == 1 {
			first = sent
		}
		if missed == 3 && !want {
			return first, nil
		}
	}
	return time.Time{}, errors.New("it is not enforced")
}

// changed waits until it is in force on both nodes, and returns when it was.
func changed(b *testing.B, want bool, asks map[string]netns.NsHandle) (last time.Time) {
	b.Helper()
	var mu sync.Mutex
	var g errgroup.Group
	for to, ns := range asks {
		g.Go(func() error {
			at, err := enforced(ns, to, want)
			mu.Lock()
			defer mu.Unlock()
			if at.After(last) {
				last = at
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		b.Fatal(err)
	}
	return last
}

// BenchmarkClusterPolicy measures from the call that creates or deletes a policy in the API server
// until pods on both nodes are isolated, and until they are open again.
func BenchmarkClusterPolicy(b *testing.B) {
	s := newSpace(b, "latency")
	s.apply(server("one", "bench", 1) + server("two", "bench", 2) + server("asks-one", "client", 2) + server("asks-two", "client", 1))
	s.ready()
	asks := map[string]netns.NsHandle{s.address("one", udpPort): s.network("asks-one"), s.address("two", udpPort): s.network("asks-two")}
	api, path := s.api(), "/apis/networking.k8s.io/v1/namespaces/"+s.name+"/networkpolicies"
	policy := map[string]any{"metadata": map[string]string{"name": "closed"}, "spec": map[string]any{"podSelector": map[string]any{"matchLabels": map[string]string{"app": "bench"}}}}
	var closes, opens []time.Duration
	for b.Loop() {
		begin := time.Now()
		if err := api.do("POST", path, policy); err != nil {
			b.Fatal(err)
		}
		closes = append(closes, changed(b, false, asks).Sub(begin))
		begin = time.Now()
		if err := api.do("DELETE", path+"/closed", nil); err != nil {
			b.Fatal(err)
		}
		opens = append(opens, changed(b, true, asks).Sub(begin))
	}
	percentiles(b, "close", closes)
	percentiles(b, "open", opens)
}

// BenchmarkClusterPod measures from the creation of a pod until its first connection arrives: it
// connects with its first instructions and, where Sluice is, may do so by policy. "make bench-kube"
// runs it on a cluster without Sluice, too.
func BenchmarkClusterPod(b *testing.B) {
	s := newSpace(b, "start")
	s.apply(shop + server("server", "server", 1))
	s.ready()
	const port = "9090"
	var l net.Listener
	if err := wires.Inside(s.network("server"), func() (err error) { l, err = net.Listen("tcp", ":"+port); return err }); err != nil {
		b.Fatal(err)
	}
	defer func() { _ = l.Close() }() // all were accepted
	api, path := s.api(), "/api/v1/namespaces/"+s.name+"/pods"
	var times []time.Duration
	for n := 0; b.Loop(); n++ {
		name := fmt.Sprint("pod-", n)
		pod := map[string]any{
			"metadata": map[string]any{"name": name, "labels": map[string]string{"app": "friend"}},
			"spec": map[string]any{
				"nodeName": nodeName(2), "restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
				"containers": []any{map[string]any{"name": "c", "image": agnhostImage, "args": []string{"connect", "--timeout=60s", s.address("server", port)}}},
			},
		}
		begin := time.Now()
		if err := api.do("POST", path, pod); err != nil {
			b.Fatal(err)
		}
		conn, err := l.Accept()
		if err != nil {
			b.Fatal(err)
		}
		times = append(times, time.Since(begin))
		if err := errors.Join(conn.Close(), api.do("DELETE", path+"/"+name, nil)); err != nil {
			b.Fatal(err)
		}
	}
	percentiles(b, "connected", times)
}
